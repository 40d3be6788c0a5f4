"""Whose turn it is at a source: its namespaces share what it can pay, however large the units are that they need.

A source has one `Turns`, shared by all engines of the process like its bucket. Each engine has a `Line` of its lanes there. A
namespace's start is the service that it has had so far, on the clock of the namespaces that are being served. The lane that
would get all that it needs first is first in line. So one key of a quiet namespace does not wait for another's long unit,
and a long unit is put off only by as much as the others get meanwhile. The first lane keeps its turn until it can be paid,
and no other lane spends what it saves up. Service that has cost nothing after all is given back, and a lane in line moves up
by it. This is deficit round robin with a heap for the ring: a unit costs the logarithm of the lanes in line, and a lane that
has nothing to do costs nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.limits import Limits

ROUND = 1.0
"""Seconds in which each lane in line shall have had a turn: in a long line, units are cut smaller."""

BEHIND = 2.0
"""Seconds of a fair share by which a namespace may stand behind those in line. One that has had more took it from a full
bucket, before the others came or while there was enough for all. Beside a thousand neighbours it would wait ten minutes."""

STALE = 1.0
"""Seconds for which an engine's first lane holds up others without a sign of life. An engine gives one when it serves its line."""


_LEFT_OVER = 4  # entries per lane in line before the old ones are taken out; one per lane is valid


class RowCost(Protocol):
    """The cost of a namespace's rows."""

    per_row: float  # taken from the bucket of the source


class Account(Protocol):
    """What a line reads of a namespace."""

    @property
    def quota(self) -> Bucket | None:
        """Its own limit, if it has one."""

    @property
    def cost(self) -> RowCost:
        """What its rows cost at the source."""


class Standing(Protocol):
    """What a line reads of a lane, and the place that it writes there."""

    ready: int
    need: int
    start: float | None

    @property
    def namespace(self) -> Account:
        """The namespace whose turn the lane waits for."""


L = TypeVar("L", bound=Standing)


class Moving(Protocol):
    """What other lines may ask of a line."""

    def move_up(self, namespace: Account) -> None:
        """The namespace got something back, so it moves up."""


class Head(NamedTuple):
    """The first in one engine's line."""

    end: float  # when it would have all that it needs; less is earlier
    amount: float  # what it saves up for
    until: float  # from then on it holds up no other


class Turns:
    """The turns of one source."""

    __slots__ = ("_clock", "_heads", "_served", "lanes", "lines")

    def __init__(self) -> None:
        self.lanes = 0  # in line, of all engines
        self.lines: dict[Moving, None] = {}  # of all engines
        self._clock = 0.0
        self._served: dict[Account, float] = {}
        self._heads: dict[Moving, Head] = {}

    def start(self, namespace: Account, behind: float = inf) -> float:
        """The place of a namespace that comes to the line now. One that was away has saved up nothing. One that would stand
        further behind than `behind` is moved up to that."""
        start = max(self._clock, self._served.get(namespace, 0.0))
        if start > self._clock + behind:
            start = self._served[namespace] = self._clock + behind
        return start

    def serve(self, namespace: Account, start: float, amount: float) -> None:
        """The namespace had its turn. Its lanes in all engines share one account."""
        start = min(start, self.start(namespace))  # something was given back
        self._clock = max(self._clock, start)
        self._served[namespace] = max(start, self._served.get(namespace, 0.0)) + amount

    def give_back(self, namespace: Account, amount: float) -> None:
        """So much of its turn was not needed."""
        if namespace in self._served:
            self._served[namespace] -= amount
            for line in self.lines:
                line.move_up(namespace)

    def wait(self, line: Moving, head: Head | None) -> None:
        """This lane is the first in that line from now on. None: the line is empty."""
        if head is None:
            self._heads.pop(line, None)
        else:
            self._heads[line] = head

    def before(self, line: Moving, end: float, now: float) -> tuple[int, float]:
        """How many other lines have a first lane whose end comes before this one, and what these lanes save up for."""
        units, amount = 0, 0.0
        for other, head in self._heads.items():
            if head.end < end and other is not line and head.until > now:
                units += 1
                amount += head.amount
        return units, amount


class Line(Generic[L]):
    """The lanes of one engine that may start as soon as one source can pay them."""

    __slots__ = ("_bucket", "_ends", "_lanes", "_limits", "_order", "_turns", "_usual")

    def __init__(self, turns: Turns, bucket: Bucket, limits: Limits) -> None:
        self._turns = turns
        self._bucket = bucket
        self._limits = limits
        self._order = count(1)
        self._ends: list[tuple[float, int, L]] = []
        self._lanes: dict[Account, tuple[int, L]] = {}  # lanes in line, each with its valid entry
        self._usual = 1  # lanes at the source when the ends were worked out
        turns.lines[self] = None

    def put(self, lane: L) -> None:
        """The lane comes to the line."""
        self._turns.lanes += 1
        lane.start = self._start(lane)
        self._enter(lane, lane.start)

    def move_up(self, namespace: Account) -> None:
        """The namespace got something back, so its place is an earlier one now."""
        _, lane = self._lanes.get(namespace, (0, None))
        start = self._turns.start(namespace)
        if lane is not None and lane.start is not None and start < lane.start:
            lane.start = start
            self._enter(lane, start)
            if len(self._ends) > _LEFT_OVER * len(self._lanes):
                self._work_out()
            self._skip()

    def first(self) -> L | None:
        """The lane whose turn it is."""
        if self._turns.lanes > 2 * self._usual or self._waits_in_vain():
            self._work_out()
        return self._ends[0][2] if self._ends else None

    def _waits_in_vain(self) -> bool:
        """Whether the bucket can hold less by now than the first lane saves up for: our share of the budget has shrunk."""
        if not self._ends:
            return False
        lane = self._ends[0][2]
        return lane.need > 1 and lane.need * lane.namespace.cost.per_row > self._bucket.burst

    def pop(self) -> float:
        """The first leaves the line; its start."""
        _, _, lane = heappop(self._ends)
        del self._lanes[lane.namespace]
        self._skip()
        self._turns.lanes -= 1
        start, lane.start = lane.start or 0.0, None
        return start

    def before(self, now: float) -> tuple[int, float]:
        """How many other lines have a first lane that comes before ours, and what these lanes save up for."""
        return self._turns.before(self, self._ends[0][0], now)

    def wait(self, now: float) -> None:
        """Our first lane cannot start yet, or there is none."""
        turns = self._turns
        if not self._ends:
            turns.wait(self, None)
            return
        end, _, lane = self._ends[0]
        amount = lane.need * lane.namespace.cost.per_row
        paid = max(now, self._bucket.when(amount))
        turns.wait(self, Head(end, amount, paid + STALE))

    def leave(self) -> None:
        """The engine is done."""
        self._turns.lanes -= len(self._lanes)
        self._turns.lines.pop(self, None)
        self._lanes.clear()
        self._ends.clear()
        self._turns.wait(self, None)

    def _end(self, lane: L, start: float) -> float:
        """When the lane would have all that it needs: the keys that are worth waiting for, so that a short bucket makes few
        statements."""
        limits, quota = self._limits, lane.namespace.quota
        cost = lane.namespace.cost.per_row
        share = self._bucket.share(min(limits.pace, ROUND / max(1, self._turns.lanes)), cost)
        lane.need = min(share, limits.unit_keys, lane.ready)
        if quota is not None:
            lane.need = min(lane.need, quota.share(limits.pace))
        return start + lane.need * cost

    def _work_out(self) -> None:
        """Works out all ends anew. Many more lanes have come, or the bucket holds less, so no lane shall wait for so much."""
        self._usual = self._turns.lanes
        self._ends = []
        for order, lane in self._lanes.values():
            lane.start = min(lane.start or 0.0, self._start(lane))
            self._ends.append((self._end(lane, lane.start), order, lane))
        heapify(self._ends)

    def _start(self, lane: L) -> float:
        fair = self._bucket.rate / self._turns.lanes
        return self._turns.start(lane.namespace, BEHIND * fair)

    def _enter(self, lane: L, start: float) -> None:
        order = next(self._order)
        self._lanes[lane.namespace] = order, lane
        heappush(self._ends, (self._end(lane, start), order, lane))

    def _skip(self) -> None:
        """Removes entries that lanes have left by moving up, so that the first entry is always a valid one."""
        ends, lanes = self._ends, self._lanes
        while ends and lanes.get(ends[0][2].namespace, (0, None))[0] != ends[0][1]:
            heappop(ends)
