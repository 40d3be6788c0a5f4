"""The screen: a live table, or a line per second where there is no terminal.

The conductor calls it, once per second with the figures of all applications.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cacheupdater.demo.lanes import LANES
from cacheupdater.demo.picture import Lines, Picture, Shown, table, terminal
from cacheupdater.demo.report import HEADINGS, LEGEND, cells

if TYPE_CHECKING:
    from rich.console import Console

    from cacheupdater.demo.books import Part


class Screen(Shown, Protocol):
    """A live screen or plain lines."""

    def show(self, phase: str, recent: Part, *, budget: int) -> None:
        """Shows the figures of the last seconds, and the present budget in rows per second."""
        ...


class Plain(Lines):
    """A line per second."""

    head = "each line, by application: waited, stale, rows/s"

    def show(self, phase: str, recent: Part, *, budget: int) -> None:
        """Prints one line."""
        lanes = []
        for lane in LANES:
            _, waited, stale, _, _, rows, _ = cells(lane, recent.accounts[lane], recent.seconds)
            lanes.append(f"{lane.title}: {waited} {stale} {rows}")
        print(f"{phase}, {budget} rows/s  {' | '.join(lanes)}", flush=True)


class Live(Picture):
    """A table of the applications."""

    def __init__(self, console: Console, *, steered: bool) -> None:
        """`steered`: whether keys can be pressed."""
        super().__init__(console, [(lane.title, lane.words) for lane in LANES] + list(LEGEND))
        self._keys = "; + and - change it" if steered else ""

    def show(self, phase: str, recent: Part, *, budget: int) -> None:
        """Draws a new table. Its title stands outside, for a table breaks a title that is wider than the table."""
        from rich.text import Text

        title = Text(f"{phase}; budget {budget} rows/s each{self._keys}", style="italic", no_wrap=True)
        rows = (cells(lane, recent.accounts[lane], recent.seconds) for lane in LANES)
        self.put(title, table(HEADINGS, rows))


def screen(*, plain: bool, steered: bool) -> Screen:
    """The live one where there is a terminal to draw on."""
    console = terminal(plain=plain)
    return Live(console, steered=steered) if console else Plain()
