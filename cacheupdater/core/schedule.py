"""Which due keys run next: misses before changes before touches, as fast as quotas and budgets pay.

Keys that can wait for a quiet moment come last, and only while the source's bucket is more than half full.
Each namespace has a backlog. A backlog with ready keys rests until it may start: its quota must pay, and a small unit waits
for company. Then it stands in line at its source, where `turns` says which backlog is first. Nothing here looks at all
backlogs: a unit costs as much among thousands of namespaces as among three. One schedule per engine. All engines of the
process share the buckets and turns behind it. `now` is an argument; `wake` says when a blocked backlog may start.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.backlog import Backlog
from cacheupdater.core.payment import Receipt
from cacheupdater.core.seats import moved, narrow
from cacheupdater.core.turns import Line
from cacheupdater.core.unit import PATIENT, Demand, Unit

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
    """Keys that waited too long, or that a full backlog gave up."""

    namespace: Namespace
    keys: list[bytes]
    demand: Demand
    reason: str


class Schedule:
    """The due keys of one partition."""

    def __init__(self, seats: Seats, limits: Limits) -> None:
        self.wake = inf
        self.waiting = 0
        self.patient = 0  # patient keys of `waiting`: the source does not count them as due
        self.dropped: list[Dropped] = []  # for the engine to account for
        self._seats = seats
        self._limits = limits
        self._backlogs: dict[Namespace, Backlog] = {}
        self._active: dict[Backlog, None] = {}  # backlogs with something ready
        self._news: dict[Backlog, None] = {}  # those of them to which something has come: to be looked at
        self.aged: deque[Unit] = deque()  # what has waited too long, and is dropped next
        # (until when, order, backlog); some entries are not valid any more
        self._resting: list[tuple[float, int, Backlog]] = []
        self._lines: dict[Source, Line[Backlog]] = {}
        self._busy: dict[Source, Line[Backlog]] = {}  # those of them in which a backlog stands
        self._shut: dict[Backlog, None] = {}  # backlogs whose quotas pay nothing until a fleet grants more
        self._delayed: list[tuple[float, int, Unit]] = []
        self._order = count()
        self._over = False

    def add(self, unit: Unit, now: float) -> None:
        """These keys are due from now on, or from their demand's `not_before`."""
        backlog = self._backlogs.get(unit.namespace)
        if backlog is None:
            backlog = self._backlogs[unit.namespace] = Backlog(unit.namespace)
        self._count(backlog, unit.demand, len(unit.keys))
        if unit.demand.since <= now - self._limits.backlog_age:  # due again, but it has waited too long
            self._drop(backlog, unit, unit.keys, "aged")
        elif unit.demand.not_before > now:
            due = min(unit.demand.not_before, unit.demand.since + self._limits.backlog_age)
            heappush(self._delayed, (due, next(self._order), unit))
        else:
            self._enqueue(backlog, unit)
        if backlog.waiting > unit.namespace.max_backlog:
            self._drop_excess(backlog)
        excess = backlog.waiting - unit.namespace.max_backlog
        if excess > 0:
            # Only delayed keys are left, this unit among them; to look for the oldest would cost too much.
            keys = unit.keys
            narrow(unit, keys[excess:])
            self._drop(backlog, unit, keys[:excess], "backlog")

    def leave(self, unit: Unit) -> None:
        """One key has left a due unit for a stronger demand."""
        backlog = self._backlogs[unit.namespace]
        moved(unit)
        self._count(backlog, unit.demand, -1)
        if unit.ready:
            backlog.count_ready(unit.demand, -1)

    def end(self) -> None:
        """Another owner will read these keys again, so the sources, which outlive us, do not count them as due any more."""
        self._over = True
        for backlog in self._backlogs.values():
            backlog.namespace.cost.wait(-backlog.counted)
            backlog.counted = 0
        for line in self._lines.values():
            line.leave()
        self._busy.clear()

    def start(self, now: float) -> list[Unit]:
        """Every unit that can be paid for now. Its keys sit in it already; it is not marked as running yet."""
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
        for backlog in self._active:
            for queue in [each for fair in backlog.queues for each in fair]:
                while queue and queue[0].demand.since <= oldest:
                    if len(self.aged) >= self._limits.turn_keys:
                        return False
                    unit = queue.popleft()
                    unit.ready = False
                    backlog.count_ready(unit.demand, unit.gone - len(unit.keys))
                    self.aged.append(unit)
        return True

    def drop_aged(self) -> None:
        """Drops as many of the collected units as fit into a turn."""
        dropped = 0
        while self.aged and dropped < self._limits.turn_keys:
            unit = self.aged.popleft()
            keys = self._seats.live(unit)
            dropped += len(keys) + 1
            self._drop(self._backlogs[unit.namespace], unit, keys, "aged")

    def _release(self, now: float) -> None:
        """Delayed units whose time has come are ready now, or have waited for too long; some thousand units in one call."""
        delayed, oldest = self._delayed, now - self._limits.backlog_age
        for _ in range(self._limits.turn_keys):
            if not delayed or delayed[0][0] > now:
                return
            _, _, unit = heappop(delayed)
            if unit.demand.since <= oldest or unit.demand.not_before > now:
                self.aged.append(unit)
            elif len(unit.keys) > unit.gone:
                self._enqueue(self._backlogs[unit.namespace], unit)

    def _enqueue(self, backlog: Backlog, unit: Unit) -> None:
        backlog.put(unit)
        self._active[backlog] = self._news[backlog] = None

    def _count(self, backlog: Backlog, demand: Demand, keys: int) -> None:
        """So many more keys wait (fewer, if negative). The source does not count patient keys as due."""
        backlog.count(demand, keys)
        self.waiting += keys
        if demand.urgency == PATIENT:
            self.patient += keys
        elif not self._over:
            backlog.counted += keys
            backlog.namespace.cost.wait(keys)

    # --- turns ------------------------------------------------------------------------------------------

    def _rouse(self, now: float) -> None:
        """Look at the backlogs to which something has come, and at those that have rested."""
        if self._shut:  # when a quota opens, all engines are asked for a step
            for backlog in [each for each in self._shut if each.namespace.quota_open(now)]:
                del self._shut[backlog]
                self._news[backlog] = None
        resting = self._resting
        while resting and (resting[0][0] <= now or resting[0][0] != resting[0][2].rests):
            until, _, backlog = heappop(resting)
            if until == backlog.rests:
                backlog.rests = inf
                self._news[backlog] = None
        for backlog in self._news:
            self._place(backlog, now)
        self._news.clear()

    def _place(self, backlog: Backlog, now: float) -> None:
        """Puts a backlog to rest, or into the line of its source. A backlog that stands there keeps its place."""
        if backlog.start is not None:
            return
        if not backlog.ready:
            self._active.pop(backlog, None)
            backlog.clear()
            return
        source = backlog.namespace.source
        until = self._rests(backlog, now)
        if until > now:
            if until < backlog.rests - _MOMENT:  # else it is looked at before, and rests again
                backlog.rests = until
                heappush(self._resting, (until, next(self._order), backlog))
            elif until == inf:
                self._shut[backlog] = None
            return
        backlog.rests = inf
        line = self._lines.get(source)
        if line is None:
            line = self._lines[source] = Line(source.turns, source.bucket, self._limits)
        self._busy[source] = line
        line.put(backlog)

    def _rests(self, backlog: Backlog, now: float) -> float:
        """Until when nothing of this backlog may start, whatever its source can pay."""
        limits, quota = self._limits, backlog.namespace.quota
        # no free connection waits while a reader or a change does: company comes while all of them are busy
        if (
            backlog.ready < limits.unit_keys
            and now < backlog.last_partial + limits.gather
            and not backlog.urgent
        ):
            return backlog.last_partial + limits.gather
        if quota is not None:
            enough = min(limits.unit_keys, backlog.ready, quota.share(limits.pace))
            if quota.rows(now) < enough:
                return max(now + _MOMENT, quota.when(enough))
        if backlog.ready == backlog.patient:
            return self._quiet_from(backlog.namespace.source, now)
        return now

    def _quiet_from(self, source: Source, now: float) -> float:
        """When the bucket holds more than urgent keys need."""
        quiet = source.bucket.burst * _QUIET
        return now if source.bucket.level(now) >= quiet else max(now + _MOMENT, source.bucket.when(quiet))

    def _serve(self, source: Source, line: Line[Backlog], now: float) -> list[Unit]:
        """One backlog after the other, until the first in line cannot be paid: no other backlog overtakes it."""
        started: list[Unit] = []
        while backlog := line.first():
            rows = 0
            if backlog.ready and self._rests(backlog, now) <= now:
                rows = self._payable(backlog, line, now)
                if not rows:
                    break
            start = line.pop()
            while rows:
                unit = self._take(backlog, rows, now)
                source.turns.serve(backlog.namespace, start, unit.receipt.paid)
                started.append(unit)
                start, rows = source.turns.start(backlog.namespace), self._undisputed(backlog, source, now)
            self._place(backlog, now)
        else:
            del self._busy[source]
        line.wait(now)
        return started

    def _undisputed(self, backlog: Backlog, source: Source, now: float) -> int:
        """The size of a whole unit, if no other backlog stands at the source and the unit can be paid now; else 0."""
        rows = self._limits.unit_keys
        if source.turns.backlogs or source.free <= 0 or backlog.namespace.quota is not None:
            return 0
        if backlog.ready < rows or backlog.ready == backlog.patient:
            return 0
        return rows if source.bucket.rows(now, backlog.namespace.cost.per_row) >= rows else 0

    def _payable(self, backlog: Backlog, line: Line[Backlog], now: float) -> int:
        """How many keys the unit of the first in line may have. If none for now, `wake` is set, or a unit must end first."""
        source, quota, cost = (
            backlog.namespace.source,
            backlog.namespace.quota,
            backlog.namespace.cost.per_row,
        )
        if source.free <= 0:
            return 0
        want = min(self._limits.unit_keys, backlog.ready)
        need = min(want, backlog.need)
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
            rows = max(need, rows // source.turns.backlogs)
        rows = min(rows, want)
        return rows if quota is None else min(rows, quota.rows(now))

    # --- units ------------------------------------------------------------------------------------------

    def _take(self, backlog: Backlog, rows: int, now: float) -> Unit:
        quiet = bool(backlog.patient) and (
            backlog.ready == backlog.patient or self._quiet_from(backlog.namespace.source, now) <= now
        )
        picked = backlog.pick(rows, self._seats, quiet=quiet)
        parts = picked.parts
        if picked.whole is not None:
            unit = picked.whole  # one pack's keys as they came: their seats are right already
        else:
            keys = [key for _, part in parts for key in part]
            unit = Unit(backlog.namespace, keys, parts[0][0])
            self._seats.give(unit)
        unit.parts = parts
        for demand, keys in parts:
            self._count(backlog, demand, -len(keys))
            backlog.count_ready(demand, -len(keys))
        backlog.last_partial = now
        unit.receipt = Receipt(backlog.namespace, len(unit.keys), now)
        return unit

    def _drop_excess(self, backlog: Backlog) -> None:
        """Drop from the peer with most keys waiting (of equals, the one that came last), the least urgent and oldest keys
        first. A thousand peers are put in order once, and not for each key."""
        most = [(-keys, -peer) for peer, keys in backlog.by_peer.items() if keys]
        heapify(most)
        while most and backlog.waiting > backlog.namespace.max_backlog:
            peer = -most[0][1]
            queues = (backlog.queues[urgency].waiting(peer) for urgency in _LEAST_URGENT_FIRST)
            if any(self._drop_some(backlog, queue) for queue in queues):
                heapreplace(most, (-backlog.by_peer.get(peer, 0), -peer))
            else:
                heappop(most)  # all that it has is delayed

    def _drop_some(self, backlog: Backlog, queue: deque[Unit]) -> bool:
        excess = backlog.waiting - backlog.namespace.max_backlog
        while queue:
            unit = queue[0]
            keys = self._seats.live(unit)
            if len(keys) > excess:
                narrow(unit, keys[excess:])
                self._drop(backlog, unit, keys[:excess], "backlog")
                return True
            self._drop(backlog, queue.popleft(), keys, "backlog")
            if keys:
                return True
        return False

    def _drop(self, backlog: Backlog, unit: Unit, keys: list[bytes], reason: str) -> None:
        self._seats.forget(keys)
        if unit.ready:
            backlog.count_ready(unit.demand, -len(keys))
        self._count(backlog, unit.demand, -len(keys))
        if keys:
            self.dropped.append(Dropped(backlog.namespace, keys, unit.demand, reason))
