"""Which priority is served next at a source: high before normal before low, except where a lower one is owed rows.

While a namespace of a lower priority stands in line, each unit that the source pays earns that priority its least share. As
soon as the priority has earned what its first unit takes, this unit goes before all others. So a lower priority never
starves, however busy the others are, and it gets no more than its least share while they need the rest. The longer a lower
priority waits, the more it has earned: this is its ageing.

A source has one `Priorities`, shared by all engines of the process, with the `Turns` of each priority. An engine has one
`Lines` there. Within a priority, `turns` says which namespace is next.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Generic, NamedTuple

from cacheupdater.core.turns import B, Line, Turns

if TYPE_CHECKING:
    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.turns import Head


class Priority(IntEnum):
    """Which namespaces come first. The numbers are their places."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


LEAST_SHARE = {Priority.NORMAL: 0.1, Priority.LOW: 0.05}
"""The part of a source that a priority gets at least, while it has something to do. High keeps 85 % then."""


class Place(NamedTuple):
    """The place of a first backlog among those of all engines; less is earlier."""

    rank: int  # 0: its priority is owed this unit
    end: float


class Priorities:
    """The priorities of one source."""

    __slots__ = ("_bucket", "_heads", "_owed", "turns")

    def __init__(self, bucket: Bucket) -> None:
        self.turns = tuple(Turns() for _ in Priority)
        self._bucket = bucket
        self._owed = [0.0 for _ in Priority]
        self._heads: dict[object, dict[Priority, Head]] = {}  # by engine

    @property
    def backlogs(self) -> int:
        """How many stand in line, of all engines."""
        high, normal, low = self.turns
        return high.backlogs + normal.backlogs + low.backlogs

    def rank(self, priority: Priority, amount: float) -> int:
        """When a unit of this priority is served that takes this amount: before all others (0), or in order."""
        return 0 if priority and self._owed[priority] >= amount else 1 + priority

    def served(self, priority: Priority, amount: float) -> None:
        """A unit of this priority was paid. The lower priorities that wait earn their least share of it."""
        for other, least in LEAST_SHARE.items():
            if other is priority:
                self._owed[other] = max(0.0, self._owed[other] + least * amount - amount)
            elif self.turns[other].backlogs:
                # bounded: an engine that stands still must not save up a burst for its priority
                self._owed[other] = min(self._bucket.burst, self._owed[other] + least * amount)
            else:
                self._owed[other] = 0.0

    def wait(self, engine: object, heads: dict[Priority, Head]) -> None:
        """These are the first backlogs of that engine from now on."""
        if heads:
            self._heads[engine] = heads
        else:
            self._heads.pop(engine, None)

    def before(self, engine: object, place: Place, now: float) -> tuple[int, float]:
        """How many first backlogs of other engines come before this place, and what these backlogs save up for."""
        units, amount = 0, 0.0
        for other, heads in self._heads.items():
            for priority, head in heads.items():
                if (
                    other is not engine
                    and head.until > now
                    and (self.rank(priority, head.amount), head.end) < place
                ):
                    units += 1
                    amount += head.amount
        return units, amount


class Lines(Generic[B]):
    """The lines of one engine at one source: one for each priority."""

    __slots__ = ("_busy", "_first", "_lines", "_priorities")

    def __init__(self, priorities: Priorities, bucket: Bucket, limits: Limits) -> None:
        self._priorities = priorities
        self._lines = {priority: Line[B](priorities.turns[priority], bucket, limits) for priority in Priority}
        self._busy: dict[Priority, Line[B]] = {}  # the lines in which a backlog stands: mostly one
        self._first: tuple[Place, Priority] | None = None  # of the backlog that `first` has named

    def __bool__(self) -> bool:
        return bool(self._busy)

    def put(self, backlog: B, priority: Priority, kept: float) -> None:
        """The backlog comes to the line of its priority, to the place that it has kept; inf: it has none."""
        line = self._busy[priority] = self._lines[priority]
        line.put(backlog, kept)

    def first(self) -> B | None:
        """The backlog whose turn it is."""
        self._first = found = None
        for priority, line in self._busy.items():
            backlog = line.first()
            place = Place(self._priorities.rank(priority, line.amount), line.end)
            if self._first is None or place < self._first[0]:
                self._first, found = (place, priority), backlog
        return found

    def pop(self) -> float:
        """The backlog that `first` has named leaves the line; its start."""
        _, priority = self._named
        line = self._lines[priority]
        start = line.pop()
        if not line:
            del self._busy[priority]
        return start

    def before(self, now: float) -> tuple[int, float]:
        """How many backlogs of other engines come before the one that `first` has named, and what they save up for."""
        place, _ = self._named
        return self._priorities.before(self, place, now)

    @property
    def _named(self) -> tuple[Place, Priority]:
        if self._first is None:
            raise LookupError("no backlog stands in line")
        return self._first

    def wait(self, now: float) -> None:
        """Our first backlogs cannot start yet, or there are none."""
        heads = {priority: line.head(now) for priority, line in self._busy.items()}
        self._priorities.wait(self, heads)

    def leave(self) -> None:
        """The engine is done."""
        for line in self._lines.values():
            line.leave()
        self._busy.clear()
        self._priorities.wait(self, {})
