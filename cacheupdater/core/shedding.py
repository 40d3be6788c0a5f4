"""Which due keys are given up when too many wait, and what is noted of them.

A namespace may have at most `max_backlog` waiting keys, and all namespaces of a partition at most `ROOM` of what may be
pending. Beyond that, the namespaces with the most waiting keys give some up. So a flood costs its own namespace, reading goes
on, and a namespace with few keys keeps all of them. If there is only one namespace, nothing is given up for others: reading
pauses, and its senders wait. Within a namespace the peer with most waiting keys for each of its clients gives up first: touches
before misses before changes; of each of these first suspects (`slow_keys`), of misses the coldest first (`heat`), and of equals the
oldest. Misses that wait for the absent bucket go before all of these: a flood of keys that do not exist costs no key that does.
`schedule` makes one and says when to shed; the engine accounts for what was `dropped`. Lives as long as its schedule.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.hints import Kind
from cacheupdater.core.seats import forget, live_keys, narrow
from cacheupdater.core.unit import KNOWN, PATIENT, SLOW, UNSEEN, URGENCY

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence

    from cacheupdater.core.aged import Aged
    from cacheupdater.core.backlog import Backlog
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.seats import Seats
    from cacheupdater.core.unit import Demand, Unit

ROOM = 0.7
"""The part of a partition's pending keys that may wait. An application's process is held at a larger part (`peers`), so one
that floods some of its namespaces goes on to be read for the others."""

MORE = 0.02
"""The part of `Limits.pending` that is given up beyond what is too much: the search for the largest backlogs looks at all of
them, some milliseconds for ten thousand, so it must be rare."""

_LEAST_URGENT_FIRST = (
    KNOWN + PATIENT,
    SLOW + PATIENT,
    PATIENT,
    KNOWN + URGENCY[Kind.TOUCH],
    SLOW + URGENCY[Kind.TOUCH],
    URGENCY[Kind.TOUCH],
    UNSEEN,
    KNOWN + URGENCY[Kind.MISS],
    SLOW + URGENCY[Kind.MISS],
    URGENCY[Kind.MISS],
    KNOWN + URGENCY[Kind.CHANGE],
    SLOW + URGENCY[Kind.CHANGE],
    URGENCY[Kind.CHANGE],
)  # queues
_UNSEEN_FIRST = (UNSEEN, *(each for each in _LEAST_URGENT_FIRST if each != UNSEEN))


def room(limits: Limits, namespaces: int) -> float:
    """How many keys may wait in a partition. A namespace that is alone takes nothing from others: its senders wait instead."""
    return round(limits.pending * ROOM) if namespaces > 1 else inf


def _level(sizes: Sequence[int], excess: int) -> int:
    """What the largest of these sizes, the largest first, shrink to when they give up so much together."""
    together = 0
    for number, (size, following) in enumerate(pairwise([*sizes, 0]), 1):
        together += size
        if together - number * following >= excess:
            return (together - excess) // number
    return 0


class Dropped(NamedTuple):
    """Keys that waited too long, or that a full backlog gave up."""

    namespace: Namespace
    keys: list[bytes]
    demand: Demand
    reason: str


class Shedding:
    """The dropped keys of one partition."""

    def __init__(self, seats: Seats, limits: Limits, count: Callable[[Backlog, Demand, int], None]) -> None:
        """`count` is told how many more keys wait, fewer if negative."""
        self.dropped: list[Dropped] = []  # for the engine to account for
        self._seats = seats
        self._limits = limits
        self._count = count

    def drop(self, backlog: Backlog, unit: Unit, keys: list[bytes], reason: str) -> None:
        """These keys leave the unit, and memory."""
        forget(self._seats, keys)
        if unit.ready:
            backlog.count_ready(unit.demand, -len(keys))
        self._count(backlog, unit.demand, -len(keys))
        if keys:
            self.dropped.append(Dropped(backlog.namespace, keys, unit.demand, reason))

    def drop_aged(self, aged: Aged, backlogs: dict[Namespace, Backlog]) -> None:
        """Drops as many of the units that have waited too long as fit into a turn."""
        dropped = 0
        while aged.units and dropped < self._limits.turn_keys:
            unit = aged.units.popleft()
            keys = live_keys(self._seats, unit)
            dropped += len(keys) + 1
            self.drop(backlogs[unit.namespace], unit, keys, aged.why(unit))

    def make_room(self, backlogs: Iterable[Backlog], excess: int) -> None:
        """So many keys too many wait in these backlogs. The largest give them up, and some more: down to one level, so that
        a search finds as many keys among ten thousand small backlogs as in one large one."""
        excess += int(self._limits.pending * MORE)
        # delayed keys are not given up: a backlog that has no others must not be found again and again
        largest = sorted((each for each in backlogs if each.queued), key=attrgetter("waiting"), reverse=True)
        level = _level([each.waiting for each in largest], excess)
        for backlog in largest:
            if excess <= 0:
                return
            before = backlog.waiting
            self.keep(backlog, level)
            excess -= before - backlog.waiting

    def keep(self, backlog: Backlog, most: int) -> None:
        """Drop from the peer with most keys waiting for each of its clients (of equals, the one that came last), the least
        urgent and oldest keys first, until at most so many are left. A thousand peers are put in order once, and not for each
        key."""
        peers = [(-keys / peer.clients, -peer.number, peer) for peer, keys in backlog.by_peer.items()]
        heapify(peers)
        order = _UNSEEN_FIRST if backlog.unseen_wait else _LEAST_URGENT_FIRST
        while peers and backlog.waiting > most:
            _, number, peer = peers[0]
            queues = (queue for at in order for queue in backlog.queues[at].waiting(peer.number))
            if any(self._drop_some(backlog, queue, backlog.waiting - most) for queue in queues):
                heapreplace(peers, (-backlog.by_peer.get(peer, 0) / peer.clients, number, peer))
            else:
                heappop(peers)  # all that it has is delayed

    def _drop_some(self, backlog: Backlog, queue: deque[Unit], excess: int) -> bool:
        while queue:
            unit = queue[0]
            keys = live_keys(self._seats, unit)
            if len(keys) > excess:
                narrow(unit, keys[excess:])
                self.drop(backlog, unit, keys[:excess], "backlog")
                return True
            self.drop(backlog, queue.popleft(), keys, "backlog")
            if keys:
                return True
        return False
