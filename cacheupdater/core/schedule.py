"""Which due keys run next: misses before changes before touches, as fast as quotas and budgets pay.

Keys that can wait for a quiet moment come last, and only while the source's bucket is more than half full.
Each namespace has a lane. A lane with ready keys rests until it may start: its quota must pay, and a small unit waits for
company. Then it stands in line at its source, where `turns` says which lane is first. Nothing here looks at all lanes: a
unit costs as much among thousands of namespaces as among three. One schedule per engine. All engines of the process share
the buckets and turns behind it. `now` is an argument; `wake` says when a blocked lane may start.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.lane import Lane
from cacheupdater.core.payment import Receipt
from cacheupdater.core.seats import moved, narrow
from cacheupdater.core.turns import Line
from cacheupdater.core.unit import PATIENT, Claim, Unit

if TYPE_CHECKING:
    from cacheupdater.core.budget import Source
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.seats import Seats

_MOMENT = 1e-6  # seconds: rounding in a bucket must not wake us at the very same time again
_YIELD = 0.002  # seconds until we look again whether another engine has taken its turn
_LEAST_URGENT_FIRST = (3, 2, 0, 1)  # what a full backlog gives up: patient keys, touches, misses, changes
_FULL = 0.9  # of a burst: the bucket is about to run over
_QUIET = 0.5  # share of a full bucket above which patient keys are served: `price` aims at just that level


class Dropped(NamedTuple):
    """Keys that waited too long or stood in too long a queue."""

    namespace: Namespace
    keys: list[bytes]
    claim: Claim
    reason: str


class Schedule:
    """The due keys of one partition."""

    def __init__(self, seats: Seats, limits: Limits) -> None:
        self.wake = inf
        self.waiting = 0
        self.patient = 0  # keys of `waiting` that are no claim on the budget
        self.dropped: list[Dropped] = []  # for the engine to account for
        self._seats = seats
        self._limits = limits
        self._lanes: dict[Namespace, Lane] = {}
        self._active: dict[Lane, None] = {}  # lanes with something ready
        self._news: dict[Lane, None] = {}  # those of them to which something has come: to be looked at
        self.aged: deque[Unit] = deque()  # what has waited too long, and is dropped next
        # (until when, order, lane); some entries are not valid any more
        self._resting: list[tuple[float, int, Lane]] = []
        self._lines: dict[Source, Line[Lane]] = {}
        self._busy: dict[Source, Line[Lane]] = {}  # those of them in which a lane stands
        self._shut: dict[Lane, None] = {}  # lanes whose quotas pay nothing until a fleet grants more
        self._delayed: list[tuple[float, int, Unit]] = []
        self._order = count()
        self._over = False

    def add(self, unit: Unit, now: float) -> None:
        """These keys are due from now on, or from their claim's `not_before`."""
        lane = self._lanes.get(unit.namespace)
        if lane is None:
            lane = self._lanes[unit.namespace] = Lane(unit.namespace)
        self._count(lane, unit.claim, len(unit.keys))
        if unit.claim.since <= now - self._limits.backlog_age:  # due again, but it has waited too long
            self._drop(lane, unit, unit.keys, "aged")
        elif unit.claim.not_before > now:
            due = min(unit.claim.not_before, unit.claim.since + self._limits.backlog_age)
            heappush(self._delayed, (due, next(self._order), unit))
        else:
            self._enqueue(lane, unit)
        if lane.waiting > unit.namespace.max_backlog:
            self._drop_excess(lane)
        excess = lane.waiting - unit.namespace.max_backlog
        if excess > 0:
            # Only delayed keys are left, this unit among them; to look for the oldest would cost too much.
            keys = unit.keys
            narrow(unit, keys[excess:])
            self._drop(lane, unit, keys[:excess], "backlog")

    def leave(self, unit: Unit) -> None:
        """One key has left a due unit for a stronger claim."""
        lane = self._lanes[unit.namespace]
        moved(unit)
        self._count(lane, unit.claim, -1)
        if unit.ready:
            lane.count_ready(unit.claim, -1)

    def end(self) -> None:
        """Another owner will read all of it again: what waits here is no claim on the budget any more, which outlives us."""
        self._over = True
        for lane in self._lanes.values():
            lane.namespace.cost.wait(-lane.claims)
            lane.claims = 0
        for line in self._lines.values():
            line.leave()
        self._busy.clear()

    def start(self, now: float) -> list[Unit]:
        """Every unit that can be paid for now, its seats taken over, not yet marked as running."""
        self._release(now)
        self._rouse(now)
        self.wake = inf
        started: list[Unit] = []
        for source, line in list(self._busy.items()):
            started += self._serve(source, line, now)
        if self._delayed:
            self.wake = min(self.wake, self._delayed[0][0])
        if self._resting:
            self.wake = min(self.wake, max(now + _MOMENT, self._resting[0][0]))
        return started

    def find_aged(self, now: float) -> bool:
        """Collects ready units that have waited for longer than `backlog_age`: they are given up, so that no key pins the
        cursor. Returns whether these were all; if not, there are enough for a turn."""
        oldest = now - self._limits.backlog_age
        for lane in self._active:
            for queue in [each for fair in lane.queues for each in fair]:
                while queue and queue[0].claim.since <= oldest:
                    if len(self.aged) >= self._limits.turn_keys:
                        return False
                    unit = queue.popleft()
                    unit.ready = False
                    lane.count_ready(unit.claim, unit.gone - len(unit.keys))
                    self.aged.append(unit)
        return True

    def drop_aged(self) -> None:
        """Drops as many of the collected units as fit into a turn."""
        dropped = 0
        while self.aged and dropped < self._limits.turn_keys:
            unit = self.aged.popleft()
            keys = self._seats.live(unit)
            dropped += len(keys) + 1
            self._drop(self._lanes[unit.namespace], unit, keys, "aged")

    def _release(self, now: float) -> None:
        """Delayed units whose time has come are ready now, or have waited for too long; some thousand units in one call."""
        delayed, oldest = self._delayed, now - self._limits.backlog_age
        for _ in range(self._limits.turn_keys):
            if not delayed or delayed[0][0] > now:
                return
            _, _, unit = heappop(delayed)
            if unit.claim.since <= oldest or unit.claim.not_before > now:
                self.aged.append(unit)
            elif len(unit.keys) > unit.gone:
                self._enqueue(self._lanes[unit.namespace], unit)

    def _enqueue(self, lane: Lane, unit: Unit) -> None:
        lane.put(unit)
        self._active[lane] = self._news[lane] = None

    def _count(self, lane: Lane, claim: Claim, keys: int) -> None:
        """So many more keys are due (fewer, if negative). Patient keys are no claim on the budget."""
        lane.count(claim, keys)
        self.waiting += keys
        if claim.urgency == PATIENT:
            self.patient += keys
        elif not self._over:
            lane.claims += keys
            lane.namespace.cost.wait(keys)

    # --- turns ------------------------------------------------------------------------------------------

    def _rouse(self, now: float) -> None:
        """Look at the lanes to which something has come, and at those that have rested."""
        if self._shut:  # when a quota opens, all engines are asked for a step
            for lane in [each for each in self._shut if each.namespace.quota_open(now)]:
                del self._shut[lane]
                self._news[lane] = None
        resting = self._resting
        while resting and (resting[0][0] <= now or resting[0][0] != resting[0][2].rests):
            until, _, lane = heappop(resting)
            if until == lane.rests:
                lane.rests = inf
                self._news[lane] = None
        for lane in self._news:
            self._place(lane, now)
        self._news.clear()

    def _place(self, lane: Lane, now: float) -> None:
        """Puts a lane to rest, or into the line of its source. A lane that stands there keeps its place."""
        if lane.start is not None:
            return
        if not lane.ready:
            self._active.pop(lane, None)
            lane.clear()
            return
        source = lane.namespace.source
        until = self._rests(lane, now)
        if until > now:
            if until < lane.rests - _MOMENT:  # else it is looked at before, and rests again
                lane.rests = until
                heappush(self._resting, (until, next(self._order), lane))
            elif until == inf:
                self._shut[lane] = None
            return
        lane.rests = inf
        line = self._lines.get(source)
        if line is None:
            line = self._lines[source] = Line(source.turns, source.bucket, self._limits)
        self._busy[source] = line
        line.put(lane)

    def _rests(self, lane: Lane, now: float) -> float:
        """Until when nothing of this lane may start, whatever its source can pay."""
        limits, quota = self._limits, lane.namespace.quota
        # no free connection waits while a reader or a change does: company comes while all of them are busy
        if lane.ready < limits.unit_keys and now < lane.last_partial + limits.gather and not lane.urgent:
            return lane.last_partial + limits.gather
        if quota is not None:
            enough = min(limits.unit_keys, lane.ready, quota.share(limits.pace))
            if quota.rows(now) < enough:
                return max(now + _MOMENT, quota.when(enough))
        if lane.ready == lane.patient:
            return self._quiet_from(lane.namespace.source, now)
        return now

    def _quiet_from(self, source: Source, now: float) -> float:
        """When the bucket holds more than urgent keys need."""
        quiet = source.bucket.burst * _QUIET
        return now if source.bucket.level(now) >= quiet else max(now + _MOMENT, source.bucket.when(quiet))

    def _serve(self, source: Source, line: Line[Lane], now: float) -> list[Unit]:
        """One lane after the other, until the first in line cannot be paid: no other lane overtakes it."""
        started: list[Unit] = []
        while lane := line.first():
            rows = 0
            if lane.ready and self._rests(lane, now) <= now:
                rows = self._payable(lane, line, now)
                if not rows:
                    break
            start = line.pop()
            while rows:
                unit = self._take(lane, rows, now)
                source.turns.serve(lane.namespace, start, unit.receipt.paid)
                started.append(unit)
                start, rows = source.turns.start(lane.namespace), self._undisputed(lane, source, now)
            self._place(lane, now)
        else:
            del self._busy[source]
        line.wait(now)
        return started

    def _undisputed(self, lane: Lane, source: Source, now: float) -> int:
        """The keys of a whole unit if nothing is left to decide: no other lane stands at the source, and it can be paid."""
        rows = self._limits.unit_keys
        if source.turns.lanes or source.free <= 0 or lane.namespace.quota is not None:
            return 0
        if lane.ready < rows or lane.ready == lane.patient:
            return 0
        return rows if source.bucket.rows(now, lane.namespace.cost.per_row) >= rows else 0

    def _payable(self, lane: Lane, line: Line[Lane], now: float) -> int:
        """How many keys the unit of the first in line may have. If none for now, `wake` is set, or a unit must end first."""
        source, quota, cost = lane.namespace.source, lane.namespace.quota, lane.namespace.cost.per_row
        if source.free <= 0:
            return 0
        want = min(self._limits.unit_keys, lane.ready)
        need = min(want, lane.need)
        units, amount = line.before(now)
        rows = source.bucket.rows(now, cost) - (int(amount / cost) if amount else 0)
        if rows < need:
            paid = source.bucket.when(amount + need * cost)
            self.wake = min(self.wake, max(now + (_YIELD if units else _MOMENT), paid))
            return 0
        if units >= source.free:
            self.wake = min(self.wake, now + _YIELD)
            return 0
        if rows * cost < source.bucket.burst * _FULL:
            # all in line share what has been saved up; a full bucket is not shared: it would run over while slots are short
            rows = max(need, rows // source.turns.lanes)
        rows = min(rows, want)
        return rows if quota is None else min(rows, quota.rows(now))

    # --- units ------------------------------------------------------------------------------------------

    def _take(self, lane: Lane, rows: int, now: float) -> Unit:
        quiet = bool(lane.patient) and (
            lane.ready == lane.patient or self._quiet_from(lane.namespace.source, now) <= now
        )
        parts, whole = lane.pick(rows, self._seats, quiet=quiet)
        if whole is not None:
            unit = whole  # one pack's keys as they came: their seats are right already
        else:
            keys = [key for _, part in parts for key in part]
            unit = Unit(lane.namespace, keys, parts[0][0])
            self._seats.give(unit)
        unit.parts = parts
        for claim, keys in parts:
            self._count(lane, claim, -len(keys))
            lane.count_ready(claim, -len(keys))
        lane.last_partial = now
        unit.receipt = Receipt(lane.namespace, len(unit.keys), now)
        return unit

    def _drop_excess(self, lane: Lane) -> None:
        """Drop from the peer with most keys waiting (of equals, the one that came last), the least urgent and oldest keys
        first. A thousand peers are put in order once, and not for each key."""
        most = [(-keys, -peer) for peer, keys in lane.by_peer.items()]
        heapify(most)
        while most and lane.waiting > lane.namespace.max_backlog:
            peer = -most[0][1]
            queues = (lane.queues[urgency].waiting(peer) for urgency in _LEAST_URGENT_FIRST)
            if any(self._drop_some(lane, queue) for queue in queues):
                heapreplace(most, (-lane.by_peer.get(peer, 0), -peer))
            else:
                heappop(most)  # all that it has is delayed

    def _drop_some(self, lane: Lane, queue: deque[Unit]) -> bool:
        excess = lane.waiting - lane.namespace.max_backlog
        while queue:
            unit = queue[0]
            keys = self._seats.live(unit)
            if len(keys) > excess:
                narrow(unit, keys[excess:])
                self._drop(lane, unit, keys[:excess], "backlog")
                return True
            self._drop(lane, queue.popleft(), keys, "backlog")
            if keys:
                return True
        return False

    def _drop(self, lane: Lane, unit: Unit, keys: list[bytes], reason: str) -> None:
        self._seats.forget(keys)
        if unit.ready:
            lane.count_ready(unit.claim, -len(keys))
        self._count(lane, unit.claim, -len(keys))
        if keys:
            self.dropped.append(Dropped(lane.namespace, keys, unit.claim, reason))
