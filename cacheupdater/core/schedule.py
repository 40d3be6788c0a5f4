"""Which due keys run next: misses before changes before touches, as fast as quotas and budgets pay.

Each namespace has a lane with a queue per urgency; lanes that have something ready take turns, one unit each.
That turn is the seam where priorities and weights will choose. One schedule per engine; the buckets behind it
are shared by all engines of the process. `now` is an argument; `wake` says when a blocked lane can go on.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.unit import URGENCY, Claim, Unit

if TYPE_CHECKING:
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace

_LEAST_URGENT_FIRST = (2, 0, 1)  # what a full backlog gives up: touches, then misses, then changes


class Dropped(NamedTuple):
    """Keys that waited too long or stood in too long a queue."""

    namespace: Namespace
    keys: list[bytes]
    claim: Claim
    reason: str


class Lane:
    """The due keys of one namespace."""

    __slots__ = ("namespace", "next_partial", "queues", "ready", "waiting")

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.queues: tuple[deque[Unit], ...] = tuple(deque() for _ in URGENCY)
        self.ready = 0  # live keys in the queues
        self.waiting = 0  # those and the delayed ones
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

    def add(self, unit: Unit, now: float) -> None:
        """These keys are due from now on, or from their claim's `not_before`."""
        lane = self._lanes.get(unit.namespace)
        if lane is None:
            lane = self._lanes[unit.namespace] = Lane(unit.namespace)
        lane.waiting += len(unit.keys)
        self.waiting += len(unit.keys)
        if unit.claim.not_before > now:
            heappush(self._delayed, (unit.claim.not_before, next(self._order), unit))
        else:
            self._enqueue(lane, unit)
        while lane.waiting > unit.namespace.max_backlog and self._drop_excess(lane):
            pass

    def leave(self, unit: Unit) -> None:
        """One key has left a due unit for a stronger claim."""
        lane = self._lanes[unit.namespace]
        unit.gone += 1
        lane.waiting -= 1
        self.waiting -= 1
        if unit.ready:
            lane.ready -= 1

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
            turn = again
        if self._active:  # who was first is last next time
            first = next(iter(self._active))
            del self._active[first]
            self._active[first] = None
        return started

    def drop_aged(self, now: float) -> None:
        """Give up what waits for longer than the backlog's age, so that no key pins the cursor."""
        oldest = now - self._limits.backlog_age
        for lane in list(self._active):
            for queue in lane.queues:
                while queue and queue[0].claim.since <= oldest:
                    self._drop(lane, queue.popleft(), "aged")

    def _release(self, now: float) -> None:
        delayed = self._delayed
        while delayed and delayed[0][0] <= now:
            _, _, unit = heappop(delayed)
            if len(unit.keys) > unit.gone:
                self._enqueue(self._lanes[unit.namespace], unit)

    def _enqueue(self, lane: Lane, unit: Unit) -> None:
        unit.ready = True
        lane.queues[unit.claim.urgency].append(unit)
        lane.ready += len(unit.keys) - unit.gone
        self._active[lane] = None

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
        want = min(limits.unit_keys, lane.ready)
        gathered = (
            lane.next_partial if lane.urgent else lane.next_partial + limits.gather_touches - limits.gather
        )
        if want < limits.unit_keys and now < gathered:
            self.wake = min(self.wake, gathered)
            return 0
        buckets = (source.bucket,) if quota is None else (source.bucket, quota)
        rows = min(bucket.rows(now) for bucket in buckets)
        if rows >= want:
            return want
        enough = min(want, *(bucket.share(limits.pace) for bucket in buckets))
        if rows >= enough:
            return rows
        self.wake = min(self.wake, max(bucket.when(enough) for bucket in buckets))
        return 0

    def _take(self, lane: Lane, rows: int, now: float) -> Unit:
        parts, whole = self._pick(lane, rows)
        if whole is not None:
            unit = whole  # one pack's keys as they came: their seats are right already
        else:
            keys = [key for _, part in parts for key in part]
            unit = Unit(lane.namespace, keys, parts[0][0])
            self._seats.update(dict.fromkeys(keys, unit))
        unit.parts = parts
        taken = len(unit.keys)
        lane.ready -= taken
        lane.waiting -= taken
        self.waiting -= taken
        lane.next_partial = now + self._limits.gather
        lane.namespace.source.free -= 1
        lane.namespace.source.bucket.take(taken)
        if lane.namespace.quota is not None:
            lane.namespace.quota.take(taken)
        return unit

    def _pick(self, lane: Lane, rows: int) -> tuple[list[tuple[Claim, list[bytes]]], Unit | None]:
        """The most urgent keys; and the one unit that they are, where they are just that."""
        parts: list[tuple[Claim, list[bytes]]] = []
        for queue in lane.queues:
            while queue and rows:
                unit = queue[0]
                if unit.claim.alone and parts:
                    return parts, None
                keys = unit.live(self._seats)
                if len(keys) > rows:
                    unit.keys, unit.gone = keys[rows:], 0
                    parts.append((unit.claim, keys[:rows]))
                    return parts, None
                queue.popleft()
                if not keys:
                    continue
                parts.append((unit.claim, keys))
                rows -= len(keys)
                if (
                    unit.claim.alone
                    or (not rows and len(parts) == 1)
                    or (len(parts) == 1 and lane.ready == len(keys))
                ):
                    return parts, unit if not unit.gone else None
        return parts, None

    def _drop_excess(self, lane: Lane) -> bool:
        excess = lane.waiting - lane.namespace.max_backlog
        for urgency in _LEAST_URGENT_FIRST:
            queue = lane.queues[urgency]
            while queue:
                unit = queue[0]
                keys = unit.live(self._seats)
                if len(keys) > excess:
                    unit.keys, unit.gone = keys[excess:], 0
                    self._give_up(lane, Dropped(lane.namespace, keys[:excess], unit.claim, "backlog"))
                    return True
                self._drop(lane, queue.popleft(), "backlog")
                if keys:
                    return True
        return False

    def _drop(self, lane: Lane, unit: Unit, reason: str) -> None:
        self._give_up(lane, Dropped(lane.namespace, unit.live(self._seats), unit.claim, reason))

    def _give_up(self, lane: Lane, dropped: Dropped) -> None:
        for key in dropped.keys:
            del self._seats[key]
        lane.ready -= len(dropped.keys)
        lane.waiting -= len(dropped.keys)
        self.waiting -= len(dropped.keys)
        self.dropped.append(dropped)
