"""Whose turn it is at a source: its namespaces share what it can pay, however large the units are that they need.

`Turns` is one per source, shared by all engines of the process as its bucket is; each engine has a `Line` of its lanes
there. A namespace's start is what it has been served so far, on the clock of those that are being served. Who would be
through first with what it needs is first in line: so one key of a quiet namespace waits for nobody's long unit, and a
long unit is put off only by as much as the others get meanwhile. Who is first keeps its turn until it can be paid, and
nobody spends what it saves up. This is deficit round robin with a heap for the ring: a unit costs the logarithm of the
lanes in line, and a lane that has nothing to do costs nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cacheupdater.core.budget import Source
    from cacheupdater.core.lane import Lane
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace

ROUND = 1.0
"""Seconds in which everybody in line shall have had a turn: where many stand there, units are cut smaller."""

STALE = 1.0
"""Seconds for which an engine's first holds up others without a sign of life; each engine gives one when it is asked."""


class Head(NamedTuple):
    """The first in one engine's line."""

    end: float  # when it would be through; less is earlier
    amount: float  # what it saves up for
    until: float  # from then on it holds up nobody


class Turns:
    """The turns of one source."""

    __slots__ = ("_clock", "_heads", "_served", "lanes")

    def __init__(self) -> None:
        self.lanes = 0  # in line, of all engines
        self._clock = 0.0
        self._served: dict[Namespace, float] = {}
        self._heads: dict[Line, Head] = {}

    def start(self, namespace: Namespace) -> float:
        """The place of a namespace that comes to the line now: who was away has saved up nothing."""
        return max(self._clock, self._served.get(namespace, 0.0))

    def serve(self, namespace: Namespace, start: float, amount: float) -> None:
        """It had its turn; its lanes in all engines share one account."""
        self._clock = max(self._clock, start)
        self._served[namespace] = max(start, self._served.get(namespace, 0.0)) + amount

    def wait(self, line: Line, head: Head | None) -> None:
        """This one is the first there from now on; or nobody is."""
        if head is None:
            self._heads.pop(line, None)
        else:
            self._heads[line] = head

    def before(self, line: Line, end: float, now: float) -> tuple[int, float]:
        """How many other lines have somebody who would be through before, and what those save up for."""
        units, amount = 0, 0.0
        for other, head in self._heads.items():
            if head.end < end and other is not line and head.until > now:
                units += 1
                amount += head.amount
        return units, amount


class Line:
    """The lanes of one engine that may start as soon as one source can pay them."""

    __slots__ = ("_ends", "_limits", "_order", "_source", "_usual")

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._order = count()
        self._ends: list[tuple[float, int, Lane]] = []
        self._usual = 1  # lanes at the source when the ends were worked out

    def put(self, lane: Lane) -> None:
        """It comes to the line."""
        lane.start = self._source.turns.start(lane.namespace)
        self._source.turns.lanes += 1
        heappush(self._ends, (self._end(lane, lane.start), next(self._order), lane))

    def first(self) -> Lane | None:
        """Whose turn it is."""
        if self._source.turns.lanes > 2 * self._usual:
            self._work_out()
        return self._ends[0][2] if self._ends else None

    def pop(self) -> float:
        """The first leaves the line; its start."""
        _, _, lane = heappop(self._ends)
        self._source.turns.lanes -= 1
        start, lane.start = lane.start or 0.0, None
        return start

    def before(self, now: float) -> tuple[int, float]:
        """How many in other lines come before our first, and what those save up for."""
        return self._source.turns.before(self, self._ends[0][0], now)

    def wait(self, now: float) -> None:
        """Our first cannot go on; or there is none."""
        turns = self._source.turns
        if not self._ends:
            turns.wait(self, None)
            return
        end, _, lane = self._ends[0]
        amount = lane.need * lane.namespace.cost.per_row
        paid = max(now, self._source.bucket.when(amount))
        turns.wait(self, Head(end, amount, paid + STALE))

    def leave(self) -> None:
        """The engine is done."""
        self._source.turns.lanes -= len(self._ends)
        self._ends.clear()
        self._source.turns.wait(self, None)

    def _end(self, lane: Lane, start: float) -> float:
        """When it would be through with the keys that are worth waiting for: a short bucket shall make few statements."""
        limits, source, quota = self._limits, self._source, lane.namespace.quota
        cost = lane.namespace.cost.per_row
        share = source.bucket.share(min(limits.pace, ROUND / max(1, source.turns.lanes)), cost)
        lane.need = min(share, limits.unit_keys, lane.ready)
        if quota is not None:
            lane.need = min(lane.need, quota.share(limits.pace))
        return start + lane.need * cost

    def _work_out(self) -> None:
        """Many more have come: nobody shall save up for so long any more."""
        self._usual = self._source.turns.lanes
        self._ends = [(self._end(lane, lane.start or 0.0), order, lane) for _, order, lane in self._ends]
        heapify(self._ends)
