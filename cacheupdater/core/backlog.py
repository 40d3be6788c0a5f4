"""The due keys of one namespace in one partition, and which of them go into its next unit.

`schedule` makes a backlog when the first key of a namespace is due, and keeps it for its own life. A backlog knows the order
of its own keys only: misses before changes before touches, and last the keys that can wait for a quiet moment. Misses of
unseen keys have a queue of their own: few or none of them may start while the absent bucket is wary. So have suspects
(`slow_keys`): every other unit is one of theirs, as long as they may have a slot. Peers take
turns within each of these, and of a peer's misses the hottest go first (`heat`). Changes get a part of the rows however many
misses wait. The schedule decides which namespace is next, and what can be paid.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.fair import Fair
from cacheupdater.core.heat import ByHeat
from cacheupdater.core.hints import Kind
from cacheupdater.core.seats import live_keys, narrow
from cacheupdater.core.unit import KNOWN, PATIENT, QUEUES, SLOW, UNSEEN, URGENCY, Demand, Unit

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterator, Sequence

    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.peers import Peer
    from cacheupdater.core.seats import Seats

_OVERTAKEN = 4  # units that one unit may overtake, and that may overtake one: a pack of 1000 is five units
_FEW = 1 / 16  # of a unit's rows, for which no other unit is cut: each cut makes two parts of one
_MISSES, _CHANGES, _TOUCHES = URGENCY[Kind.MISS], URGENCY[Kind.CHANGE], URGENCY[Kind.TOUCH]
_MOST_URGENT_FIRST = (_MISSES, UNSEEN, _CHANGES, _TOUCHES, PATIENT)  # queues
_TURN = 2
"""Units in one turn of a peer, if nobody waits for the keys. A unit has as many rows as can be paid now.

A partial unit waits for company, so turns of one unit let the rest of each pack wait behind the packs that other peers brought
later. With ten clients that send some 200 keys every 100 ms, the 99th percentile of the time in the backlog was 15, 24 and 80 ms
in three runs, and is 14 to 15 ms.
"""
CHANGES_PART = 1 / 3
"""Rows for changes per row for a miss, while both wait. So a flood of misses leaves a quarter of the rows to changes."""


class Backlog:
    """The due keys of one namespace."""

    __slots__ = (
        "by_peer",
        "counted",
        "known",
        "known_waits",
        "last_partial",
        "live",
        "looked_at",
        "namespace",
        "need",
        "owed",
        "queued",
        "queues",
        "rests",
        "slow",
        "slow_waits",
        "start",
        "unseen_room",
        "unseen_wait",
        "unseen_waiting",
        "waiting",
        "was_slow",
    )

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.queues: tuple[Fair[int, ByHeat[Unit]], ...] = tuple(Fair(ByHeat) for _ in range(QUEUES))
        self.by_peer: dict[Peer, int] = {}  # keys of `waiting`
        self.owed = 0.0  # rows that changes have saved up while misses were served
        self.live = [0] * QUEUES  # live keys in each queue
        self.queued = 0  # all of them
        self.slow = 0  # those of them that are suspects, in pieces
        self.known = 0  # those of them that are suspects, alone
        self.slow_waits = self.known_waits = False  # as many of these run as may
        self.unseen_wait = False  # the absent bucket is wary, so most of these wait
        self.unseen_room = inf  # so many of them may start
        self.waiting = 0  # all of `queued`, and the delayed ones
        self.unseen_waiting = 0  # those of them that are unseen
        self.counted = 0  # keys of `waiting` that the source counts as due: all that can run in any moment
        self.was_slow = False  # its last unit was one of suspects, so the next one is not
        self.last_partial = -inf  # when its last unit was started
        self.looked_at = inf  # when its oldest keys may have waited too long
        self.rests = inf  # until when none of its keys may start, whatever the budget
        self.start: float | None = None  # its place in the line of its source, once it stands there
        self.need = 0  # keys that must be payable before its turn

    @property
    def urgent(self) -> bool:
        """Whether a reader waits, or a value is known to be old."""
        live = self.live
        return bool(live[_MISSES] or live[_CHANGES] or (live[UNSEEN] and self.unseen_room >= 1))

    @property
    def ready(self) -> int:
        """Live keys in the queues that may run once they are paid for."""
        if self.unseen_wait:
            return self.queued - max(0, self.live[UNSEEN] - int(self.unseen_room)) - self.withheld
        return self.queued - self.withheld if self.slow_waits or self.known_waits else self.queued

    @property
    def withheld(self) -> int:
        """Suspects in the queues that wait for a slot of theirs."""
        return (self.slow if self.slow_waits else 0) + (self.known if self.known_waits else 0)

    def count_ready(self, demand: Demand, keys: int) -> None:
        """So many more live keys are in the queues (fewer, if negative)."""
        at = demand.queue
        self.live[at] += keys
        self.queued += keys
        if at >= KNOWN:
            self.known += keys
        elif at >= SLOW:
            self.slow += keys

    def count(self, demand: Demand, keys: int) -> None:
        """So many more keys wait (fewer, if negative)."""
        peer = demand.peer
        self.waiting += keys
        peer.waiting += keys
        if of_peer := self.by_peer.get(peer, 0) + keys:
            self.by_peer[peer] = of_peer
        else:
            self.by_peer.pop(peer, None)
        if demand.unseen:
            self.unseen_waiting += keys

    def put(self, unit: Unit) -> None:
        """In the order of arrival. A unit that is due again, or merged, keeps its place among those of its peer and heat."""
        unit.ready = True
        demand = unit.demand
        items = self.queues[demand.queue].of(demand.peer.number)
        queue = items.coldest if demand.asks == 1 else items.of(demand.heat)
        since = demand.since
        if queue and since < queue[-1].demand.since:
            queue.insert(bisect_right(queue, since, key=lambda other: other.demand.since), unit)
        else:
            queue.append(unit)
        self.count_ready(demand, len(unit.keys) - unit.gone)

    @property
    def oldest(self) -> Unit | None:
        """The ready unit that came first."""
        firsts = (queue[0] for queue in self.all_queues())
        return min(firsts, key=lambda unit: unit.demand.since, default=None)

    def all_queues(self) -> Iterator[deque[Unit]]:
        """The queues in which a unit waits, each in the order of arrival."""
        return (queue for fair in self.queues for items in fair for queue in items)

    def clear(self) -> None:
        """What is left in the queues has no live keys."""
        for queue in self.queues:
            queue.clear()

    def pick(self, rows: int, seats: Seats, *, quiet: bool) -> Picking:
        """The most urgent keys. Keys that can wait are picked only if it is `quiet`."""
        picking = Picking(rows, seats)
        if (self.slow or self.known) and not self.was_slow:
            self._pick_suspects(picking)
        if self.owed >= 1.0:
            picking.take(self.queues[_CHANGES], min(rows, int(self.owed)))
        for at in _MOST_URGENT_FIRST:
            if self.live[at] and (quiet or at != PATIENT):
                most = picking.rows if at != UNSEEN else min(picking.rows, self.unseen_room)
                picking.take(self.queues[at], int(most))
        if not picking.parts:  # all others wait for something
            self._pick_suspects(picking)
        self._owe(picking.parts)
        self.was_slow = bool(picking.parts) and picking.parts[0][0].slow > 0
        return picking

    def _pick_suspects(self, picking: Picking) -> None:
        first, end = KNOWN if self.slow_waits else SLOW, KNOWN if self.known_waits else QUEUES
        for queue in self.queues[first:end]:
            picking.take(queue, picking.rows)

    def _owe(self, parts: Sequence[tuple[Demand, list[bytes]]]) -> None:
        """Count the rows that these parts owe to changes."""
        if not (self.live[_CHANGES] and self.queues[_CHANGES]):
            self.owed = 0.0
            return
        for demand, keys in parts:
            if demand.urgency == _MISSES:
                self.owed += len(keys) * CHANGES_PART
            elif demand.urgency == _CHANGES:
                self.owed = max(0.0, self.owed - len(keys))


class Picking:
    """A unit that is being put together: its `parts`, and the `host` that the keys of all parts join.

    The host is the largest unit that was taken whole. The host's own keys, mostly the greater part, keep their seats. If the
    next unit is too large, a smaller one from a few places behind is taken. If there is none, the unit is cut in two, unless
    hardly any row is left. A statement costs much more than a cut: when units were cut only for the half of the rows, and a pack
    brought some fifty fresh keys, a statement loaded 170 keys and not 200.
    """

    __slots__ = ("_few", "_seats", "_turn", "host", "own", "parts", "rows")

    def __init__(self, rows: int, seats: Seats) -> None:
        self.rows = rows  # left
        self.parts: list[tuple[Demand, list[bytes]]] = []
        self.host: Unit | None = None  # None: no unit was taken whole
        self.own: list[bytes] = []  # the host's keys
        self._few = int(rows * _FEW)
        self._turn = rows * _TURN
        self._seats = seats

    def take(self, queue: Fair[int, ByHeat[Unit]], most: int) -> None:
        """Take at most so many keys from this queue."""
        while self.rows and most > 0 and (flow := queue.first()):
            items = flow.items.first
            unit = items[0]
            if unit.demand.alone and self.parts:
                self.rows = 0
                return
            if not self.parts and len(unit.keys) < self.rows and _let_full_first(items, self.rows):
                continue
            keys = live_keys(self._seats, unit)
            if most < self.rows and len(keys) > most:  # owed rows are given even if a unit is cut for them
                keys = self._cut(unit, keys, most)
            elif len(keys) > self.rows:
                if self.parts and _bring_forward(items, self.rows):
                    continue
                keys = self._cut(unit, keys, self.rows) if self.rows > self._few else []
                self.rows = 0
            else:
                items.popleft()
                self._add(unit, keys)
            most -= len(keys)
            turn = self._turn if unit.demand.urgency >= _TOUCHES else 0
            clients = unit.demand.peer.clients
            queue.serve(flow, len(keys) / clients, turn=turn / clients)

    def _cut(self, unit: Unit, keys: list[bytes], rows: int) -> list[bytes]:
        narrow(unit, keys[rows:])
        self.parts.append((unit.demand, keys[:rows]))
        self.rows -= rows
        return keys[:rows]

    def _add(self, unit: Unit, keys: list[bytes]) -> None:
        if not keys:
            return
        if len(keys) > len(self.own):
            self.host, self.own = unit, keys
        self.parts.append((unit.demand, keys))
        self.rows = 0 if unit.demand.alone else self.rows - len(keys)


def _let_full_first(queue: deque[Unit], rows: int) -> bool:
    """Let a full unit overtake a smaller one, if nobody waits for the smaller one. At most a few overtake the same unit.

    Without this rule the full unit is cut to fill up the smaller one. The rest of the full unit is then the smaller one of the next
    pick, so the next full unit is cut too. Of a million different keys a second, every third moved into another unit.
    """
    small = queue[0]
    if small.overtaken == _OVERTAKEN or small.demand.urgency < _TOUCHES:
        return False
    for at in range(1, min(len(queue), _OVERTAKEN + 1)):
        unit = queue[at]
        if len(unit.keys) == rows and not unit.gone:
            small.overtaken += 1
            del queue[at]
            queue.appendleft(unit)
            return True
    return False


def _bring_forward(queue: deque[Unit], rows: int) -> bool:
    """Let a unit that fits overtake a few that do not; they run next."""
    for at in range(1, min(len(queue), _OVERTAKEN + 1)):
        unit = queue[at]
        if len(unit.keys) - unit.gone <= rows and not unit.demand.alone:
            del queue[at]
            queue.appendleft(unit)
            return True
    return False
