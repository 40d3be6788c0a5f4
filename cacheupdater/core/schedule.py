"""Which due keys run next: misses before changes before touches, as fast as quotas and budgets pay.

Keys that can wait for a quiet moment come last, and only while the source's bucket is more than half full. Misses of unseen
keys start only as far as the absent bucket of their namespace lets them.
Each namespace has a backlog. A backlog with ready keys rests until it may start: its quota must pay, and a small unit waits
for company (`resting`). Then it stands in line at its source, where `priorities` and `turns` say which backlog is first. A
backlog that is alone there needs no line. Nothing here looks at all backlogs: a unit costs as much among thousands of
namespaces as among three. One schedule per engine. All engines of the process share the buckets and turns behind it. `now` is
an argument; `wake` says when a blocked backlog may start.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.aged import Aged
from cacheupdater.core.apart import Apart
from cacheupdater.core.backlog import Backlog
from cacheupdater.core.breaker import PROBE_KEYS
from cacheupdater.core.payment import Receipt
from cacheupdater.core.priorities import Lines
from cacheupdater.core.resting import MOMENT, is_apart, quiet_from, rests_until
from cacheupdater.core.seats import join, moved, narrow
from cacheupdater.core.shedding import Shedding, room
from cacheupdater.core.unit import PATIENT, Demand, Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.budget import Source
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.seats import Seats

_YIELD = 0.002  # seconds until we look again whether another engine has taken its turn
_EASE = 0.02  # seconds until we look again how much the breaker of a source lets us spend
_FULL = 0.9  # of a burst: the bucket is about to run over


class Schedule:
    """The due keys of one partition."""

    def __init__(self, seats: Seats, limits: Limits, *, namespaces: int) -> None:
        self.wake = inf
        self.waiting = 0
        self.withheld: dict[Namespace, None] = {}  # whose misses of unseen keys wait for the absent bucket
        self.patient = 0  # patient keys of `waiting`: the source does not count them as due
        self._seats = seats
        self._limits = limits
        self._room = room(limits, namespaces)
        self._backlogs: dict[Namespace, Backlog] = {}
        self.active: dict[Backlog, None] = {}  # backlogs with something ready
        self._news: dict[Backlog, None] = {}  # those of them to which something has come: to be looked at
        self.aged = Aged(limits)  # what has waited too long, and is dropped next
        self.shedding = Shedding(seats, limits, self._count)
        self._apart = Apart()
        # (until when, order, backlog); some entries are not valid any more
        self._resting: list[tuple[float, int, Backlog]] = []
        self._lines: dict[Source, Lines[Backlog]] = {}
        self._busy: dict[Source, Lines[Backlog]] = {}  # those of them in which a backlog stands
        # backlogs whose namespaces hold all slots that they may, and the places that they keep in line
        self._parked: dict[Source, dict[Backlog, float]] = {}
        self.delayed: list[tuple[float, int, Unit]] = []
        self._order = count()
        self._over = False

    def add(self, unit: Unit, now: float) -> None:
        """These keys are due from now on, or from their demand's `not_before`."""
        backlog = self._backlogs.get(unit.namespace)
        if backlog is None:
            backlog = self._backlogs[unit.namespace] = Backlog(unit.namespace)
        self._count(backlog, unit.demand, len(unit.keys))
        too_late = self.aged.at(unit)
        if too_late <= now:  # due again, but it has waited too long
            self.shedding.drop(backlog, unit, unit.keys, self.aged.why(unit))
        elif unit.demand.not_before > now:
            heappush(self.delayed, (min(unit.demand.not_before, too_late), next(self._order), unit))
        else:
            self._enqueue(backlog, unit, too_late)
        most = unit.namespace.max_backlog
        if backlog.waiting > most:
            self.shedding.keep(backlog, most)
            if (excess := backlog.waiting - most) > 0:
                # Only delayed keys are left, this unit among them; to look for the oldest would cost too much.
                keys = unit.keys
                narrow(unit, keys[excess:])
                self.shedding.drop(backlog, unit, keys[:excess], "backlog")
        if self.waiting > self._room:
            self.shedding.make_room(self.active, int(self.waiting - self._room))

    def is_behind(self, namespace: Namespace) -> bool:
        """Whether more keys wait than a second pays for. Else it does not matter which of them is first."""
        source, quota = namespace.source, namespace.quota
        if source.due > source.bucket.rate:
            return True
        backlog = self._backlogs.get(namespace) if quota is not None else None
        return quota is not None and backlog is not None and backlog.waiting > quota.rate

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
            backlog.namespace.absent_bucket.waiting -= backlog.unseen_waiting
            backlog.namespace.source.slots.wait_apart(self._apart, waits=False)
            backlog.counted = 0
        for line in self._lines.values():
            line.leave()
        self._busy.clear()

    def start(self, now: float) -> list[Unit]:
        """Every unit that can be paid for now. Its keys sit in it already; it is not marked as running yet."""
        self._release(now)
        started = self._rouse(now)
        self.wake = inf
        for source, line in list(self._busy.items()):
            started += self._serve(source, line, now)
        if self.delayed:
            self.wake = min(self.wake, self.delayed[0][0])
        if self._resting:
            self.wake = min(self.wake, max(now + MOMENT, self._resting[0][0]))
        self.wake = min(self.wake, self._apart.wake(now))
        return started

    def pause(self, namespaces: Collection[Namespace]) -> None:
        """Whatever is due in these namespaces is dropped from now on, and in no others."""
        self.aged.paused = namespaces
        for namespace in namespaces:
            if namespace in self._backlogs:
                self.aged.look_at(self._backlogs[namespace])

    def drop_aged(self) -> None:
        """Drops what `aged` has found, for one turn."""
        self.shedding.drop_aged(self.aged, self._backlogs)

    def _release(self, now: float) -> None:
        """Delayed units whose time has come are ready now, or have waited for too long; some thousand units in one call."""
        delayed = self.delayed
        for _ in range(self._limits.turn_keys):
            if not delayed or delayed[0][0] > now:
                return
            _, _, unit = heappop(delayed)
            too_late = self.aged.at(unit)
            if too_late <= now or unit.demand.not_before > now:
                self.aged.units.append(unit)
            elif len(unit.keys) > unit.gone:
                self._enqueue(self._backlogs[unit.namespace], unit, too_late)

    def _enqueue(self, backlog: Backlog, unit: Unit, too_late: float) -> None:
        backlog.put(unit)
        self.active[backlog] = self._news[backlog] = None
        if too_late < backlog.looked_at:
            self.aged.watch(backlog, too_late)

    def _count(self, backlog: Backlog, demand: Demand, keys: int) -> None:
        """So many more keys wait (fewer, if negative). The source does not count keys as due that cannot run in any moment."""
        backlog.count(demand, keys)
        self.waiting += keys
        if demand.unseen and not self._over:
            backlog.namespace.absent_bucket.waiting += keys
        if demand.urgency == PATIENT:
            self.patient += keys
        elif not (demand.unseen and backlog.unseen_wait):
            self._count_due(backlog, keys)

    def _count_due(self, backlog: Backlog, keys: int) -> None:
        if not self._over:
            backlog.counted += keys
            backlog.namespace.cost.wait(keys)

    def _look_who_waits(self, backlog: Backlog, now: float) -> None:
        """Which of the ready keys may not start now, whatever can be paid. Most backlogs have neither suspects nor unseen keys."""
        if backlog.slow or backlog.known or backlog.slow_waits or backlog.known_waits:
            self._apart.ask(backlog, now)
        if backlog.unseen_waiting or backlog.unseen_wait:
            self._ask_absent_bucket(backlog, now)

    def _ask_absent_bucket(self, backlog: Backlog, now: float) -> None:
        """While it is wary, most misses of unseen keys wait. They take little from the source then, so they do not count as due."""
        bucket = backlog.namespace.absent_bucket
        wait = backlog.unseen_waiting > 0 and bucket.is_wary(now)
        backlog.unseen_room = bucket.room(now) if wait else inf
        if wait is backlog.unseen_wait:
            return
        backlog.unseen_wait = wait
        self._count_due(backlog, -backlog.unseen_waiting if wait else backlog.unseen_waiting)
        if wait:
            self.withheld[backlog.namespace] = None
        else:
            self.withheld.pop(backlog.namespace, None)

    # --- turns ------------------------------------------------------------------------------------------

    def _rouse(self, now: float) -> list[Unit]:
        """Look at the backlogs to which something has come, and at those that have rested."""
        for source, parked in self._parked.items():
            for backlog in islice(parked, max(0, source.slots.free)):
                self._news[backlog] = None
        resting = self._resting
        while resting and (resting[0][0] <= now or resting[0][0] != resting[0][2].rests):
            until, _, backlog = heappop(resting)
            if until == backlog.rests:
                backlog.rests = inf
                self._news[backlog] = None
        started: list[Unit] = []
        if len(self._news) == 1:
            started = self._serve_alone(next(iter(self._news)), now)
        for backlog in self._news:
            self._place(backlog, now)
        self._news.clear()
        return started

    def _serve_alone(self, backlog: Backlog, now: float) -> list[Unit]:
        """The only backlog with news starts its units at once if no other stands in line at its source. To come to the line and
        to leave it for each unit took a sixth of a step's time."""
        started: list[Unit] = []
        namespace = backlog.namespace
        source, turns = namespace.source, namespace.turns
        if self._parked.get(source):  # these have kept their places in line
            return started
        self._look_who_waits(backlog, now)
        paid = 0.0
        while rows := self._undisputed(backlog, source, now):
            unit = self._take(backlog, rows, now)
            turns.serve(namespace, turns.arrive(namespace), unit.receipt.paid)
            paid += unit.receipt.paid
            started.append(unit)
        if started:
            backlog.rests = inf
            source.priorities.served(namespace.priority, paid)
        return started

    def _place(self, backlog: Backlog, now: float) -> None:
        """Puts a backlog to rest, or into the line of its source. A backlog that stands there keeps its place."""
        if backlog.start is not None:
            return
        self._look_who_waits(backlog, now)
        if not backlog.queued:
            self.active.pop(backlog, None)
            backlog.clear()
            return
        source = backlog.namespace.source
        kept = self._parked[source].pop(backlog, inf) if source in self._parked else inf
        until = rests_until(backlog, self._limits, now)
        if until > now:
            if backlog.withheld:
                self._parked.setdefault(source, {})[backlog] = kept
            if until < backlog.rests - MOMENT:  # else it is looked at before, and rests again
                backlog.rests = until
                heappush(self._resting, (until, next(self._order), backlog))
            elif until == inf and not is_apart(backlog):
                self._closed_bucket(backlog.namespace, now).shut_out[backlog] = partial(
                    self._news.setdefault, backlog, None
                )
            return
        backlog.rests = inf
        line = self._lines.get(source)
        if line is None:
            line = self._lines[source] = Lines(source.priorities, source.bucket, self._limits)
        self._busy[source] = line
        line.put(backlog, backlog.namespace.priority, kept)

    def _closed_bucket(self, namespace: Namespace, now: float) -> Bucket:
        """Which bucket pays nothing until a fleet grants more; all engines are asked for a step then."""
        quota = namespace.quota
        return namespace.source.bucket if quota is None or now < quota.until else quota

    def _serve(self, source: Source, line: Lines[Backlog], now: float) -> list[Unit]:
        """One backlog after the other, until the first in line cannot be paid: no other backlog overtakes it."""
        started: list[Unit] = []
        opens_at = source.breaker.opens_at(now)
        # without a free slot nothing starts: we are woken when a unit ends
        while source.slots.free > 0 and opens_at <= now and (backlog := line.first()):
            if source.slots.room(backlog.namespace) <= 0:
                self._park(backlog, line)
                continue
            rows = 0
            self._look_who_waits(backlog, now)
            if backlog.ready and rests_until(backlog, self._limits, now) <= now:
                rows = self._payable(backlog, line, now)
                if not rows:
                    break
            start, turns = line.pop(), backlog.namespace.turns
            while rows:
                unit = self._take(backlog, rows, now)
                turns.serve(backlog.namespace, start, unit.receipt.paid)
                source.priorities.served(backlog.namespace.priority, unit.receipt.paid)
                started.append(unit)
                start, rows = turns.start(backlog.namespace), self._undisputed(backlog, source, now)
            self._place(backlog, now)
            if started and source.breaker.is_open:
                opens_at = inf  # one unit is the probe
        if not line:
            del self._busy[source]
        if opens_at > now:
            self.wake = min(self.wake, opens_at)
        line.wait(now)
        return started

    def _park(self, backlog: Backlog, line: Lines[Backlog]) -> None:
        """Others go first until one of the namespace's units has ended. It keeps its place."""
        start = line.pop()
        self._parked.setdefault(backlog.namespace.source, {})[backlog] = start

    def _undisputed(self, backlog: Backlog, source: Source, now: float) -> int:
        """The size of the next unit, if no other backlog stands at the source and all of the unit can be paid now; else 0."""
        ready, namespace = backlog.ready, backlog.namespace
        if ready == backlog.live[PATIENT] or namespace.quota is not None:
            return 0
        if source.slots.room(namespace) <= 0 or source.priorities.backlogs or not source.breaker.is_calm(now):
            return 0
        if rests_until(backlog, self._limits, now) > now:
            return 0
        rows = min(namespace.loads.unit_keys(self._limits.unit_keys), ready)
        return rows if source.bucket.rows(now, namespace.cost.per_row) >= rows else 0

    def _payable(self, backlog: Backlog, line: Lines[Backlog], now: float) -> int:
        """How many keys the unit of the first in line may have. If none for now, `wake` is set, or a unit must end first."""
        source, quota, cost = (
            backlog.namespace.source,
            backlog.namespace.quota,
            backlog.namespace.cost.per_row,
        )
        most = PROBE_KEYS if source.breaker.is_open else self._limits.unit_keys
        want = min(backlog.namespace.loads.unit_keys(most), backlog.ready)
        need = min(want, backlog.need)
        units, amount = line.before(now)
        rows = source.bucket.rows(now, cost) - (int(amount / cost) if amount else 0)
        if rows < need:
            paid = source.bucket.when(amount + need * cost)
            self.wake = min(self.wake, max(now + (_YIELD if units else MOMENT), paid))
            return 0
        if units >= source.slots.free:
            self.wake = min(self.wake, now + _YIELD)
            return 0
        allowed = source.breaker.may_spend(now, source.bucket.rate, source.bucket.spent)
        if allowed < inf:  # units shrink with the budget: ours, and the units of backlogs before it
            eased = source.breaker.eased(now)
            rows, need = min(rows, int((allowed - amount * eased) / cost)), max(1, int(need * eased))
            if rows < need:
                self.wake = min(self.wake, now + _EASE)
                return 0
        if rows * cost < source.bucket.burst * _FULL:
            # all in line share what has been saved up; a full bucket is not shared: it would run over while slots are short
            rows = max(need, int(rows * backlog.namespace.turns.part(backlog.namespace)))
        rows = min(rows, want)
        return rows if quota is None else min(rows, quota.rows(now))

    # --- units ------------------------------------------------------------------------------------------

    def _take(self, backlog: Backlog, rows: int, now: float) -> Unit:
        quiet = bool(backlog.live[PATIENT]) and (
            backlog.ready == backlog.live[PATIENT] or quiet_from(backlog.namespace.source, now) <= now
        )
        picked = backlog.pick(rows, self._seats, quiet=quiet)
        backlog.namespace.loads.tries = False
        parts = picked.parts
        unit = picked.host or Unit(backlog.namespace, [], parts[0][0])
        join(self._seats, unit, parts, picked.own)
        unseen = 0
        for demand, keys in parts:
            self._count(backlog, demand, -len(keys))
            backlog.count_ready(demand, -len(keys))
            unseen += len(keys) if demand.unseen else 0
        backlog.last_partial = now
        backlog.unseen_room = max(0, backlog.unseen_room - unseen)  # unseen suspects take more than the room
        suspects = parts[0][0].slow
        unit.receipt = Receipt(backlog.namespace, len(unit.keys), now, unseen=unseen, suspects=suspects)
        if suspects:
            self._apart.took(backlog)
        if suspects or backlog.slow or backlog.known:
            self._apart.ask(backlog, now)
        return unit
