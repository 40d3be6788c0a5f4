"""Which due keys run next: misses before changes before touches, as fast as quotas and budgets pay.

What can wait for a quiet moment comes last, and only where the source's bucket is more than half full.
Each namespace has a lane with a queue per urgency; lanes that have something ready take turns, one unit each.
That turn is the seam where priorities and weights will choose. One schedule per engine; the buckets behind it
are shared by all engines of the process. `now` is an argument; `wake` says when a blocked lane can go on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.unit import PATIENT, Claim, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.budget import Source
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace

_MOMENT = 1e-6  # seconds: rounding in a bucket must not wake us at the very same time again
_LEAST_URGENT_FIRST = (3, 2, 0, 1)  # what a full backlog gives up: what can wait, touches, misses, changes
_QUIET = 0.5  # share of a full bucket above which the patient are served: `price` aims at just that level

_OVERTAKEN = 4  # units that a smaller one may overtake: a pack of 1000 is five units


class Dropped(NamedTuple):
    """Keys that waited too long or stood in too long a queue."""

    namespace: Namespace
    keys: list[bytes]
    claim: Claim
    reason: str


class Lane:
    """The due keys of one namespace."""

    __slots__ = ("claims", "namespace", "next_partial", "patient", "queues", "ready", "waiting")

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.queues: tuple[deque[Unit], ...] = tuple(deque() for _ in range(PATIENT + 1))
        self.ready = 0  # live keys in the queues
        self.patient = 0  # those of them in the last one
        self.waiting = 0  # those and the delayed ones
        self.claims = 0  # those of them that are a claim on the budget
        self.next_partial = 0.0

    @property
    def urgent(self) -> bool:
        """Somebody waits, or an old value does."""
        return bool(self.queues[0] or self.queues[1])


class Schedule:
    """The due keys of one partition."""

    def __init__(self, seats: dict[bytes, Unit], limits: Limits) -> None:
        self.wake = inf
        self.waiting = 0
        self.dropped: list[Dropped] = []  # for the engine to account for
        self._seats = seats
        self._limits = limits
        self._lanes: dict[Namespace, Lane] = {}
        self._active: dict[Lane, None] = {}  # lanes with something ready, in the order of their turns
        self._delayed: list[tuple[float, int, Unit]] = []
        self._order = count()
        self._over = False

    def add(self, unit: Unit, now: float) -> None:
        """These keys are due from now on, or from their claim's `not_before`."""
        lane = self._lanes.get(unit.namespace)
        if lane is None:
            lane = self._lanes[unit.namespace] = Lane(unit.namespace)
        self._count(lane, unit.claim, len(unit.keys))
        if unit.claim.since <= now - self._limits.backlog_age:  # due again, but for too long by now
            self._drop(lane, unit, unit.keys, "aged")
        elif unit.claim.not_before > now:
            heappush(self._delayed, (unit.claim.not_before, next(self._order), unit))
        else:
            self._enqueue(lane, unit)
        while lane.waiting > unit.namespace.max_backlog and self._drop_excess(lane):
            pass
        excess = lane.waiting - unit.namespace.max_backlog
        if excess > 0:
            # Only delayed keys are left, this unit among them; to look for the oldest would cost too much.
            keys = unit.keys
            unit.keys = keys[excess:]
            self._drop(lane, unit, keys[:excess], "backlog")

    def leave(self, unit: Unit) -> None:
        """One key has left a due unit for a stronger claim."""
        lane = self._lanes[unit.namespace]
        unit.gone += 1
        self._count(lane, unit.claim, -1)
        if unit.ready:
            _count_ready(lane, unit.claim, -1)

    def end(self) -> None:
        """Another owner will read all of it again: what waits here is no claim on a budget that outlives us."""
        self._over = True
        for lane in self._lanes.values():
            lane.namespace.cost.wait(-lane.claims)
            lane.claims = 0

    def start(self, now: float) -> list[Unit]:
        """Every unit that can be paid for now, its seats taken over, not yet marked as running."""
        self._release(now)
        self.wake = self._delayed[0][0] if self._delayed else inf
        started: list[Unit] = []
        turn = list(self._active)
        while turn:
            again: list[Lane] = []
            for lane in turn:
                rows = self._payable(lane, now)
                if rows:
                    started.append(self._take(lane, rows, now))
                    again.append(lane)
                    del self._active[lane]  # who was served is last next time
                    self._active[lane] = None
            turn = again
        return started

    def drop_aged(self, now: float) -> None:
        """Give up what waits for longer than the backlog's age, so that no key pins the cursor."""
        oldest = now - self._limits.backlog_age
        aged = [unit for _, _, unit in self._delayed if unit.claim.since <= oldest]
        if aged:
            self._delayed = [entry for entry in self._delayed if entry[2].claim.since > oldest]
            heapify(self._delayed)
        for lane in self._active:
            for queue in lane.queues:
                while queue and queue[0].claim.since <= oldest:
                    aged.append(queue.popleft())
        for unit in aged:
            self._drop(self._lanes[unit.namespace], unit, unit.live(self._seats), "aged")

    def _release(self, now: float) -> None:
        delayed = self._delayed
        while delayed and delayed[0][0] <= now:
            _, _, unit = heappop(delayed)
            if len(unit.keys) > unit.gone:
                self._enqueue(self._lanes[unit.namespace], unit)

    def _enqueue(self, lane: Lane, unit: Unit) -> None:
        """In the order of arrival: what is due again, or merged, has kept its place."""
        unit.ready = True
        queue, since = lane.queues[unit.claim.urgency], unit.claim.since
        if queue and since < queue[-1].claim.since:
            queue.insert(bisect_right(queue, since, key=lambda other: other.claim.since), unit)
        else:
            queue.append(unit)
        _count_ready(lane, unit.claim, len(unit.keys) - unit.gone)
        self._active[lane] = None

    def _count(self, lane: Lane, claim: Claim, keys: int) -> None:
        """So many more keys are due (fewer, if negative). The patient are no claim on the budget."""
        lane.waiting += keys
        self.waiting += keys
        if claim.urgency != PATIENT and not self._over:
            lane.claims += keys
            lane.namespace.cost.wait(keys)

    def _payable(self, lane: Lane, now: float) -> int:
        """How many keys the lane's next unit may have; none for now sets `wake`, or waits for a unit to end."""
        source, quota, limits = lane.namespace.source, lane.namespace.quota, self._limits
        if not lane.ready:
            self._active.pop(lane, None)
            for queue in lane.queues:
                queue.clear()  # what is left there has no live keys
            return 0
        if source.free <= 0:
            return 0
        if lane.ready == lane.patient and not self._quiet(source, now):
            return 0
        want = min(limits.unit_keys, lane.ready)
        gathered = (
            lane.next_partial if lane.urgent else lane.next_partial + limits.gather_touches - limits.gather
        )
        if want < limits.unit_keys and now < gathered:
            self.wake = min(self.wake, gathered)
            return 0
        bucket, cost = source.bucket, lane.namespace.cost.per_row
        rows = bucket.rows(now, cost)
        enough = min(want, bucket.share(limits.pace, cost))
        if quota is not None:
            rows, enough = min(rows, quota.rows(now)), min(enough, quota.share(limits.pace))
        if rows >= enough:
            return min(rows, want)
        paid = max(bucket.when(enough * cost), quota.when(enough) if quota is not None else 0.0)
        self.wake = min(self.wake, max(now + _MOMENT, paid))
        return 0

    def _quiet(self, source: Source, now: float) -> bool:
        """Whether there is more in the bucket than anybody urgent needs; else sets `wake`."""
        quiet = source.bucket.burst * _QUIET
        if source.bucket.level(now) >= quiet:
            return True
        self.wake = min(self.wake, max(now + _MOMENT, source.bucket.when(quiet)))
        return False

    def _take(self, lane: Lane, rows: int, now: float) -> Unit:
        parts, whole = self._pick(lane, rows, now)
        if whole is not None:
            unit = whole  # one pack's keys as they came: their seats are right already
        else:
            keys = [key for _, part in parts for key in part]
            unit = Unit(lane.namespace, keys, parts[0][0])
            self._seats.update(dict.fromkeys(keys, unit))
        unit.parts = parts
        for claim, keys in parts:
            self._count(lane, claim, -len(keys))
            _count_ready(lane, claim, -len(keys))
        lane.next_partial = now + self._limits.gather
        unit.paid = len(unit.keys) * lane.namespace.cost.per_row
        lane.namespace.source.free -= 1
        lane.namespace.source.bucket.take(unit.paid)
        if lane.namespace.quota is not None:
            lane.namespace.quota.take(len(unit.keys))
        return unit

    def _served(self, lane: Lane, now: float) -> Sequence[deque[Unit]]:
        """The queues whose turn it may be."""
        patient = lane.patient and (lane.ready == lane.patient or self._quiet(lane.namespace.source, now))
        return lane.queues if patient else lane.queues[:PATIENT]

    def _pick(self, lane: Lane, rows: int, now: float) -> tuple[list[tuple[Claim, list[bytes]]], Unit | None]:
        """The most urgent keys; and the one unit that they are, where they are just that.

        To run as it came saves a unit the new seats of all its keys. So where the next unit is too large, a smaller
        one a few places behind goes along, and half of what could be had is enough before one is cut in two.
        """
        parts: list[tuple[Claim, list[bytes]]] = []
        whole: Unit | None = None
        enough = rows // 2
        for queue in self._served(lane, now):
            while queue and rows:
                unit = queue[0]
                if unit.claim.alone and parts:
                    return parts, whole
                keys = unit.live(self._seats)
                if len(keys) > rows:
                    if parts and _bring_forward(queue, rows):
                        continue
                    if rows <= enough:
                        return parts, whole
                    unit.keys, unit.gone = keys[rows:], 0
                    parts.append((unit.claim, keys[:rows]))
                    return parts, None
                queue.popleft()
                if not keys:
                    continue
                whole = unit if not parts and not unit.gone else None
                parts.append((unit.claim, keys))
                rows -= len(keys)
                if unit.claim.alone:
                    return parts, whole
        return parts, whole

    def _drop_excess(self, lane: Lane) -> bool:
        excess = lane.waiting - lane.namespace.max_backlog
        for urgency in _LEAST_URGENT_FIRST:
            queue = lane.queues[urgency]
            while queue:
                unit = queue[0]
                keys = unit.live(self._seats)
                if len(keys) > excess:
                    unit.keys, unit.gone = keys[excess:], 0
                    self._drop(lane, unit, keys[:excess], "backlog")
                    return True
                self._drop(lane, queue.popleft(), keys, "backlog")
                if keys:
                    return True
        return False

    def _drop(self, lane: Lane, unit: Unit, keys: list[bytes], reason: str) -> None:
        for key in keys:
            del self._seats[key]
        if unit.ready:
            _count_ready(lane, unit.claim, -len(keys))
        self._count(lane, unit.claim, -len(keys))
        if keys:
            self.dropped.append(Dropped(lane.namespace, keys, unit.claim, reason))


def _count_ready(lane: Lane, claim: Claim, keys: int) -> None:
    lane.ready += keys
    if claim.urgency == PATIENT:
        lane.patient += keys


def _bring_forward(queue: deque[Unit], rows: int) -> bool:
    """Let a unit that fits overtake a few that do not; they run next."""
    for at in range(1, min(len(queue), _OVERTAKEN + 1)):
        unit = queue[at]
        if len(unit.keys) - unit.gone <= rows and not unit.claim.alone:
            del queue[at]
            queue.appendleft(unit)
            return True
    return False
