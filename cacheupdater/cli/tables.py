"""Tables and figures for people, as several commands print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """One line per row. Each column is as wide as its widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def percent(share: float) -> str:
    """A share with two significant digits: `0.14%`, `4.8%`, `34%`."""
    value = share * 100.0
    return f"{value:.0f}%" if value >= 9.95 else f"{value:.1f}%" if value >= 0.995 else f"{value:.2f}%"


def number(value: float) -> str:
    """A number such as `1,234,567`, `41.2` or `0.077`."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
