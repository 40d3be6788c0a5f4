"""The words and lines that both demonstrations print: the shop's introduction, the legend, columns, checks, and their margin.

The `main` and `report` of each demonstration call it. Pure: nothing here prints.
"""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.demo import plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cacheupdater.demo.lanes import Lane

WIDTH = 80
"""Columns of the narrowest terminal, which would break longer lines within words."""

SHOP = f"""\
A shop with {plan.PRODUCTS} products in SQLite; {plan.CHANGES_PER_S:.0f} prices change every second,
most of them always the same few.
"""
STALE = ("stale", "of all reads, those that got a price which had been replaced")
AGE = ("age", "the time since its replacement: at most, for 50 % and 99 % of stale reads")

_LABELS = {True: "ok", False: "FAILED", None: "-"}
_LABELLED = 8  # columns before a check's words


class Check(NamedTuple):
    """Something that the demonstration promises."""

    passed: bool | None  # None: it could not be checked
    words: str

    def __str__(self) -> str:
        return f"{_LABELS[self.passed]:6}  {self.words}"


def judged(checks: Iterable[Check]) -> str:
    """A line for each check."""
    return lined(map(str, checks), after=_LABELLED)


def exit_code(checks: Iterable[Check]) -> int:
    """0 if no check has failed, otherwise 1."""
    return 1 if any(check.passed is False for check in checks) else 0


def introduced(lanes: Iterable[Lane]) -> str:
    """What each application is."""
    return lined(f"- {lane.title}: {lane.words}" for lane in lanes)


def lined(texts: Iterable[str], *, after: int = 2) -> str:
    """Each text on lines of its own; all lines of a text but the first are indented by `after` columns."""
    return "\n".join(fill(text, WIDTH, subsequent_indent=" " * after) for text in texts)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns: the first to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def duration(value: float) -> str:
    """A time in whole milliseconds, or in seconds if it is longer than one."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
