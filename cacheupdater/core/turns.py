"""Whose turn it is at a source: its namespaces share what it can pay, however large the units are that they need.

`Turns` is one per source, shared by all engines of the process as its bucket is; each engine has a `Line` of its lanes
there. A namespace's start is what it has been served so far, on the clock of those that are being served. Who would be
through first with what it needs is first in line: so one key of a quiet namespace waits for nobody's long unit, and a
long unit is put off only by as much as the others get meanwhile. Who is first keeps its turn until it can be paid, and
nobody spends what it saves up. What has cost nothing after all is given back, and who stands in line moves up by it. This is deficit round robin with a heap for the ring: a unit costs the logarithm of the
lanes in line, and a lane that has nothing to do costs nothing.
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
"""Seconds in which everybody in line shall have had a turn: where many stand there, units are cut smaller."""

BEHIND = 2.0
"""Seconds of a fair share by which one may stand behind those in line. Who has had more took it from a full bucket, before they
came or while there was enough for all; beside a thousand neighbours it would wait ten minutes for that."""

STALE = 1.0
"""Seconds for which an engine's first holds up others without a sign of life; each engine gives one when it is asked."""


_LEFT_OVER = 4  # entries per lane in line, of which one counts, before the others are taken out


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

    end: float  # when it would be through; less is earlier
    amount: float  # what it saves up for
    until: float  # from then on it holds up nobody


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
        """The place of a namespace that comes to the line now: who was away has saved up nothing, and who would be further
        behind owes no more than that."""
        start = max(self._clock, self._served.get(namespace, 0.0))
        if start > self._clock + behind:
            start = self._served[namespace] = self._clock + behind
        return start

    def serve(self, namespace: Account, start: float, amount: float) -> None:
        """It had its turn; its lanes in all engines share one account."""
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
        """This one is the first there from now on; or nobody is."""
        if head is None:
            self._heads.pop(line, None)
        else:
            self._heads[line] = head

    def before(self, line: Moving, end: float, now: float) -> tuple[int, float]:
        """How many other lines have somebody who would be through before, and what those save up for."""
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
        self._lanes: dict[Account, tuple[int, L]] = {}  # who stands here, and by which entry
        self._usual = 1  # lanes at the source when the ends were worked out
        turns.lines[self] = None

    def put(self, lane: L) -> None:
        """It comes to the line."""
        self._turns.lanes += 1
        lane.start = self._start(lane)
        self._enter(lane, lane.start)

    def move_up(self, namespace: Account) -> None:
        """Something was given back to it, and its place is an earlier one now."""
        _, lane = self._lanes.get(namespace, (0, None))
        start = self._turns.start(namespace)
        if lane is not None and lane.start is not None and start < lane.start:
            lane.start = start
            self._enter(lane, start)
            if len(self._ends) > _LEFT_OVER * len(self._lanes):
                self._work_out()
            self._skip()

    def first(self) -> L | None:
        """Whose turn it is."""
        if self._turns.lanes > 2 * self._usual or self._waits_in_vain():
            self._work_out()
        return self._ends[0][2] if self._ends else None

    def _waits_in_vain(self) -> bool:
        """Whether the bucket holds less by now than the first saves up for: our share of the budget has shrunk."""
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
        """How many in other lines come before our first, and what those save up for."""
        return self._turns.before(self, self._ends[0][0], now)

    def wait(self, now: float) -> None:
        """Our first cannot go on; or there is none."""
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
        """When it would be through with the keys that are worth waiting for: a short bucket shall make few statements."""
        limits, quota = self._limits, lane.namespace.quota
        cost = lane.namespace.cost.per_row
        share = self._bucket.share(min(limits.pace, ROUND / max(1, self._turns.lanes)), cost)
        lane.need = min(share, limits.unit_keys, lane.ready)
        if quota is not None:
            lane.need = min(lane.need, quota.share(limits.pace))
        return start + lane.need * cost

    def _work_out(self) -> None:
        """Many more have come, or there is less to save up: nobody shall wait for so much any more."""
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
        """Entries of those who have moved up mean nothing any more; the first is always one that does."""
        ends, lanes = self._ends, self._lanes
        while ends and lanes.get(ends[0][2].namespace, (0, None))[0] != ends[0][1]:
            heappop(ends)
