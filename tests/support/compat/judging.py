"""Compares the outcomes of both sides, test by test, and sums them up by kind of client.

A test whose outcome differs is run again with the others that differ, on one side after the other. It *differs* if our side then shows
an outcome that stock has never shown. Otherwise it *wavers*: the outcome depends on the moment, with stock too, or it no longer
differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from compat.sides import Outcomes

ROUNDS = 3  # in which tests that differ run again; a test that fails every other time passes thrice in one of eight
ABSENT = "absent"  # the test is not there on this side
KINDS = ("sync", "asyncio", "pipelines", "cluster")

Again: TypeAlias = Callable[[Sequence[str]], Mapping[str, "Outcomes"]]


class Doubt(NamedTuple):
    """A test whose outcome differed: what each side showed in each round."""

    name: str
    stock: tuple[str, ...]
    ours: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return not set(self.ours[1:]) <= set(self.stock)


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


def judged(first: Mapping[str, Outcomes], again: Again) -> Verdict:
    """The verdict on the outcomes of the first run. `again` runs the named tests on both sides."""
    stock, ours = first["stock"].by_test, first["ours"].by_test
    same = {name: outcome for name, outcome in stock.items() if ours.get(name) == outcome}
    odd = sorted((stock.keys() | ours.keys()) - same.keys())
    rounds = [first, *(again(odd) for _ in range(ROUNDS))] if odd else []

    def shown(side: str, name: str) -> tuple[str, ...]:
        return tuple(each[side].by_test.get(name, ABSENT) for each in rounds)

    return Verdict(same, [Doubt(name, shown("stock", name), shown("ours", name)) for name in odd])


def kind_of(name: str, topology: str) -> str:
    """The kind of client that a test is about; the first that fits, in the order cluster, pipelines, asyncio, sync."""
    if topology == "cluster":
        return "cluster"
    file = name.partition("::")[0]
    if "pipeline" in file:
        return "pipelines"
    return "asyncio" if "asyncio" in file else "sync"


class Row(NamedTuple):
    """One line of the table. Each test is in one of the five counts."""

    kind: str
    passed: int
    failed: int
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
