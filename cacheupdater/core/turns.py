"""Whose turn it is at a source among the namespaces of one priority: they share by weight, however large their units are.

A source has one `Turns` for each priority (`priorities` chooses among these), shared by all engines of the process like its
bucket. Each engine has a `Line` of its backlogs there. This is weighted fair queueing: beside the real source there is a fair
one, which serves all that have something to do at the same time. Its clock shows the rows that a namespace of weight 1 has got.
A backlog's start is the service of its namespace so far, on that clock, and what the backlogs of its namespace need that stand
in line already. The backlog that would get all that it needs first is first in line. So one key of a quiet namespace does not
wait for another's long unit, and a namespace has one share, in however many engines it stands.

The first backlog keeps its turn until it can be paid, and no other backlog spends what it saves up. Service that has cost
nothing after all is given back, and the namespace's backlogs in line move up by it. A unit costs the logarithm of the backlogs
in line, and a backlog that has nothing to do costs nothing.
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
"""Seconds in which each backlog in line shall have had a turn: in a long line, units are cut smaller."""

BEHIND = 2.0
"""Seconds of a fair share by which a namespace may stand behind those in line. A namespace that has had more took it
from a full bucket, before the others came or while there was enough for all. Without this bound, it would wait ten minutes
beside a thousand neighbours."""

STALE = 1.0
"""Seconds for which an engine's first backlog holds up others without a sign of life. An engine gives one when it serves its line."""


_LEFT_OVER = 4  # entries per backlog in line before the old ones are taken out; one per backlog is valid


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

    @property
    def weight(self) -> float:
        """Its part of the source, beside the weights of the others."""


class Standing(Protocol):
    """What a line reads of a backlog, and the place that it writes there."""

    need: int
    start: float | None

    @property
    def ready(self) -> int:
        """Its keys that may run once they are paid for."""

    @property
    def namespace(self) -> Account:
        """The namespace whose turn the backlog waits for."""


B = TypeVar("B", bound=Standing)


class Moving(Protocol):
    """What other lines may ask of a line."""

    def move_up(self, namespace: Account, by: float) -> None:
        """The namespace got something back, so it moves up."""


class Head(NamedTuple):
    """The first in one engine's line."""

    end: float  # when it would have all that it needs; less is earlier
    amount: float  # what it saves up for
    until: float  # from then on it holds up no other


class Turns:
    """The turns of one priority at one source."""

    __slots__ = (
        "_ahead",
        "_order",
        "_promised",
        "_served",
        "_standing",
        "_tags",
        "backlogs",
        "clock",
        "lines",
        "weight",
    )

    def __init__(self) -> None:
        self.backlogs = 0  # in line, of all engines
        self.weight = 0.0  # of all that the fair source serves now
        self.lines: dict[Moving, None] = {}  # of all engines
        self._standing: dict[Account, int] = {}  # backlogs in line, by namespace
        self.clock = 0.0
        # amounts, each divided by the weight
        self._served: dict[Account, float] = {}
        self._promised: dict[Account, float] = {}  # what the backlogs in line need
        # The fair source still serves these namespaces, which stand nowhere any more; and until when, by its clock.
        self._ahead: dict[Account, float] = {}
        self._tags: list[tuple[float, int, Account]] = []
        self._order = count()

    def count(self, namespace: Account, more: int) -> None:
        """So many more backlogs of the namespace stand in line (fewer, if negative)."""
        before = self._standing.pop(namespace, 0)
        self.backlogs += more
        if before + more:
            self._standing[namespace] = before + more
        if not before:  # one that was away has saved up nothing
            self._served[namespace] = max(self.clock, self._served.get(namespace, 0.0))
            if self._ahead.pop(namespace, None) is None:
                self.weight += namespace.weight
        elif not before + more:
            self.weight -= namespace.weight
            self._stay(namespace)

    def _stay(self, namespace: Account) -> None:
        """The namespace stands nowhere, but the fair source may still have to serve what it has got here."""
        served = self._served[namespace]
        if served > self.clock:
            if namespace not in self._ahead:
                self.weight += namespace.weight
            self._ahead[namespace] = served
            heappush(self._tags, (served, next(self._order), namespace))

    def _go_on(self, clock: float) -> None:
        """The clock moves, and whoever has got all from the fair source too leaves it."""
        self.clock = clock
        tags, ahead = self._tags, self._ahead
        while tags and tags[0][0] <= clock:
            served, _, namespace = heappop(tags)
            if ahead.get(namespace) == served:
                del ahead[namespace]
                self.weight -= namespace.weight
        if not ahead and not self._standing:
            self.weight = 0.0  # without rounding

    def part(self, namespace: Account) -> float:
        """The part of one backlog of the namespace in what all in line get."""
        return namespace.weight * self._fair(namespace) / max(1, self._standing.get(namespace, 0))

    def promise(self, namespace: Account, amount: float) -> None:
        """A backlog in line needs so much more (less, if negative). Those that come after it stand behind it."""
        if namespace in self._standing:
            self._promised[namespace] = self._promised.get(namespace, 0.0) + amount / namespace.weight
        else:
            self._promised.pop(namespace, None)  # without rounding

    def behind(self, namespace: Account, rate: float) -> float:
        """How far the namespace may stand behind."""
        return BEHIND * rate * self._fair(namespace) + namespace.cost.per_row / namespace.weight

    def _fair(self, namespace: Account) -> float:
        """What the namespace gets of the fair source, divided by its weight; a part of the rate."""
        counts = namespace in self._standing or namespace in self._ahead
        return 1.0 / (self.weight if counts else self.weight + namespace.weight)

    def earliest(self, namespace: Account, rate: float) -> float:
        """The earliest place that the namespace may have kept: it saves up no more than it may be behind."""
        return self.clock - BEHIND * rate * self._fair(namespace)

    def start(self, namespace: Account, behind: float = inf) -> float:
        """The place of a backlog that comes to the line now, behind those of its namespace that are there. A namespace that would
        stand further behind than `behind` is moved up to that."""
        served = self._served[namespace] = min(self._served[namespace], self.clock + behind)
        return served + self._promised.get(namespace, 0.0)

    def arrive(self, namespace: Account) -> float:
        """The start of a backlog that need not stand in line. A namespace that was away has saved up nothing."""
        served = self._served[namespace] = max(self.clock, self._served.get(namespace, 0.0))
        return served

    def serve(self, namespace: Account, start: float, amount: float) -> None:
        """The namespace had its turn. Its backlogs in all engines share one account."""
        served, fair = self._served[namespace], self._fair(namespace)
        self._served[namespace] = served + amount / namespace.weight
        if not self._standing and not self._ahead:  # alone: the fair source keeps up with it
            self.clock = max(self.clock + amount * fair, min(start, served))
            return
        if namespace not in self._standing:
            self._stay(namespace)
        self._go_on(max(self.clock + amount * fair, min(start, served)))

    def give_back(self, namespace: Account, amount: float) -> None:
        """So much of its turn was not needed."""
        if namespace in self._served:
            by = amount / namespace.weight
            self._served[namespace] -= by
            for line in self.lines:
                line.move_up(namespace, by)


class Line(Generic[B]):
    """The backlogs of one engine that may start as soon as one source can pay them."""

    __slots__ = ("_backlogs", "_bucket", "_ends", "_limits", "_order", "_turns", "_usual")

    def __init__(self, turns: Turns, bucket: Bucket, limits: Limits) -> None:
        self._turns = turns
        self._bucket = bucket
        self._limits = limits
        self._order = count(1)
        self._ends: list[tuple[float, int, B]] = []
        self._backlogs: dict[Account, tuple[int, B]] = {}  # backlogs in line, each with its valid entry
        self._usual = 1  # backlogs at the source when the ends were worked out
        turns.lines[self] = None

    def put(self, backlog: B, kept: float = inf) -> None:
        """The backlog comes to the line. `kept`: the place that it had, if it left the line without a turn."""
        self._turns.count(backlog.namespace, 1)
        backlog.start = min(
            self._start(backlog), max(kept, self._turns.earliest(backlog.namespace, self._bucket.rate))
        )
        self._enter(backlog, backlog.start)

    def move_up(self, namespace: Account, by: float) -> None:
        """The namespace got something back, so its place is an earlier one now."""
        _, backlog = self._backlogs.get(namespace, (0, None))
        if backlog is not None and backlog.start is not None and backlog.start > self._turns.clock:
            backlog.start = max(self._turns.clock, backlog.start - by)
            self._enter(backlog, backlog.start)
            if len(self._ends) > _LEFT_OVER * len(self._backlogs):
                self._work_out()
            self._skip()

    def first(self) -> B | None:
        """The backlog whose turn it is."""
        if self._turns.backlogs > 2 * self._usual or self._waits_in_vain():
            self._work_out()
        return self._ends[0][2] if self._ends else None

    def _waits_in_vain(self) -> bool:
        """Whether the bucket can hold less by now than the first backlog saves up for: our share of the budget has shrunk."""
        if not self._ends:
            return False
        backlog = self._ends[0][2]
        return backlog.need > 1 and backlog.need * backlog.namespace.cost.per_row > self._bucket.burst

    def pop(self) -> float:
        """The first leaves the line; its start."""
        _, _, backlog = heappop(self._ends)
        del self._backlogs[backlog.namespace]
        self._skip()
        self._gone(backlog)
        start, backlog.start = backlog.start or 0.0, None
        return start

    def __bool__(self) -> bool:
        return bool(self._ends)

    @property
    def end(self) -> float:
        """When the first backlog would have all that it needs."""
        return self._ends[0][0]

    @property
    def amount(self) -> float:
        """What the first backlog saves up for."""
        backlog = self._ends[0][2]
        return backlog.need * backlog.namespace.cost.per_row

    def head(self, now: float) -> Head:
        """Our first backlog, for the engines that share the source with us."""
        amount = self.amount
        return Head(self.end, amount, max(now, self._bucket.when(amount)) + STALE)

    def leave(self) -> None:
        """The engine is done."""
        for _, backlog in self._backlogs.values():
            self._gone(backlog)
        self._turns.lines.pop(self, None)
        self._backlogs.clear()
        self._ends.clear()

    def _gone(self, backlog: B) -> None:
        """The backlog does not stand in line any more."""
        needed, backlog.need = backlog.need, 0
        self._turns.count(backlog.namespace, -1)
        self._turns.promise(backlog.namespace, -needed * backlog.namespace.cost.per_row)

    def _end(self, backlog: B, start: float) -> float:
        """When the backlog would have all that it needs: the keys that are worth waiting for, so that a short bucket makes few
        statements."""
        limits, quota, before = self._limits, backlog.namespace.quota, backlog.need
        cost = backlog.namespace.cost.per_row
        share = self._bucket.share(min(limits.pace, ROUND * self._turns.part(backlog.namespace)), cost)
        need = min(share, limits.unit_keys, backlog.ready)
        backlog.need = need if quota is None else min(need, quota.share(limits.pace))
        self._turns.promise(backlog.namespace, (backlog.need - before) * cost)
        return start + backlog.need * cost / backlog.namespace.weight

    def _work_out(self) -> None:
        """Works out all ends anew. Many more backlogs have come, or the bucket holds less, so no backlog shall wait for so much."""
        self._usual = self._turns.backlogs
        self._ends = []
        for order, backlog in self._backlogs.values():
            backlog.start = min(backlog.start or 0.0, self._start(backlog))
            self._ends.append((self._end(backlog, backlog.start), order, backlog))
        heapify(self._ends)

    def _start(self, backlog: B) -> float:
        turns, namespace = self._turns, backlog.namespace
        own = backlog.need * namespace.cost.per_row / namespace.weight
        return turns.start(namespace, turns.behind(namespace, self._bucket.rate)) - own

    def _enter(self, backlog: B, start: float) -> None:
        order = next(self._order)
        self._backlogs[backlog.namespace] = order, backlog
        heappush(self._ends, (self._end(backlog, start), order, backlog))

    def _skip(self) -> None:
        """Removes entries that backlogs have left by moving up, so that the first entry is always a valid one."""
        ends, backlogs = self._ends, self._backlogs
        while ends and backlogs.get(ends[0][2].namespace, (0, None))[0] != ends[0][1]:
            heappop(ends)
