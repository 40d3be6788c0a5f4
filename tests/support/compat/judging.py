"""Compares the outcomes of both sides, test by test, and sums them up by kind of client.

Tests whose outcome differs run again in rounds, on one side after the other: once together with all tests of their files, since
a test may fail because of what ran before it, then alone. A test *differs* if our side shows again an outcome that stock has
never shown, or if one side shows an outcome in far more rounds than the other. Otherwise it *wavers*: the outcome depends on the
moment, with stock too, or the difference has not come back. The page lists both, round by round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from compat.sides import Outcomes

WHOLE_FILES = (True, False, False, False, False)  # the rounds in which tests that differ run again
ROUNDS = len(WHOLE_FILES)
# A test that fails every other time, on both sides, has so unequal counts in one of 26 cases. A test that fails always with
# ours, and now and then with stock, has them.
FAR_MORE = (1 + ROUNDS) // 2
ABSENT = "absent"  # the test is not there on this side
KINDS = ("sync", "asyncio", "pipelines", "cluster sync", "cluster asyncio")

Again: TypeAlias = Callable[[Sequence[str], bool], Mapping[str, "Outcomes"]]


class Doubt(NamedTuple):
    """A test whose outcome differed: what each side showed in each round."""

    name: str
    stock: tuple[str, ...]
    ours: tuple[str, ...]

    @property
    def differs(self) -> bool:
        shown = {each: self.ours.count(each) - self.stock.count(each) for each in self.ours + self.stock}
        return not set(self.ours[1:]) <= set(self.stock) or max(shown.values()) > FAR_MORE


class Verdict(NamedTuple):
    """All tests of one topology of one version."""

    same: Mapping[str, str]  # the outcome of tests that agree
    doubts: Sequence[Doubt]

    @property
    def different(self) -> list[Doubt]:
        return [each for each in self.doubts if each.differs]

    @property
    def wavering(self) -> list[Doubt]:
        return [each for each in self.doubts if not each.differs]


def failed_on_both(first: Mapping[str, Outcomes]) -> list[str]:
    """The tests that neither side has passed."""
    stock, ours = first["stock"].by_test, first["ours"].by_test
    return sorted(name for name, outcome in stock.items() if outcome == ours.get(name) == "failed")


def judged(first: Mapping[str, Outcomes], again: Again) -> Verdict:
    """The verdict on the outcomes of the first run. `again` runs tests on both sides: the named ones, or all of their files."""
    stock, ours = first["stock"].by_test, first["ours"].by_test
    same = {name: outcome for name, outcome in stock.items() if ours.get(name) == outcome}
    odd = sorted((stock.keys() | ours.keys()) - same.keys())
    rounds = [first, *(again(odd, whole) for whole in WHOLE_FILES)] if odd else []

    def shown(side: str, name: str) -> tuple[str, ...]:
        return tuple(each[side].by_test.get(name, ABSENT) for each in rounds)

    return Verdict(same, [Doubt(name, shown("stock", name), shown("ours", name)) for name in odd])


def kind_of(name: str, topology: str) -> str:
    """The kind of client that a test is about, by its run and its file."""
    file = name.partition("::")[0]
    waiting = "asyncio" if "async" in file else "sync"
    if topology == "cluster":
        return f"cluster {waiting}"
    return "pipelines" if "pipeline" in file else waiting


class Row(NamedTuple):
    """One line of the table. Each test is in one of the counts."""

    kind: str
    passed: int
    failed: int
    unfinished: int
    skipped: int
    wavering: int
    different: int


def rows_of(verdict: Verdict, topology: str) -> list[Row]:
    """The table of one topology."""
    counts = {kind: Counter[str]() for kind in KINDS}
    for name, outcome in verdict.same.items():
        counts[kind_of(name, topology)][outcome] += 1
    for doubt in verdict.doubts:
        counts[kind_of(doubt.name, topology)]["different" if doubt.differs else "wavering"] += 1
    columns = Row._fields[1:]
    return [Row(kind, *(found[each] for each in columns)) for kind, found in counts.items() if found]
