"""The screen: a live picture of updaters and pages, or a line per second where there is no terminal.

The conductor calls it, once per second with the figures of all updaters and both pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cacheupdater.demo.group.books import PAGES
from cacheupdater.demo.group.report import LEGEND, READS, UPDATERS, curves, page_row, updater_row
from cacheupdater.demo.picture import Lines, Picture, Shown, table, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from cacheupdater.demo.group.books import Books
    from cacheupdater.demo.group.member import Member

_SECONDS_DRAWN = 50  # beside the words, in a terminal of 80
_CURVES_SHOWN = 2  # the third is flat


class Screen(Shown, Protocol):
    """A live screen or plain lines."""

    def show(self, phase: str, members: Sequence[Member], books: Books) -> None:
        """Shows the figures of the last seconds."""
        ...


class Plain(Lines):
    """A line per second."""

    head = "each line: partitions and refreshes/s of each updater; stale, age p99 and waited of each page"

    def show(self, phase: str, members: Sequence[Member], books: Books) -> None:
        """Prints one line."""
        recent = books.recent()
        rows = [updater_row(member) for member in members]
        said = [f"{name} {owned} {rate}/s" for name, _, owned, _, rate in rows if owned != "-"]
        for page in PAGES:
            title, stale, _, age, waited, _ = page_row(page, recent)
            said.append(f"{title}: {stale} {age} {waited}")
        print(f"{phase}  {' | '.join(said)}", flush=True)


class Live(Picture):
    """Two tables and a curve that are drawn again and again, with the latest events below."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, [(page.title, page.words) for page in PAGES] + list(LEGEND))

    def show(self, phase: str, members: Sequence[Member], books: Books) -> None:
        """Draws a new picture."""
        from rich.text import Text

        recent = books.recent()
        updaters = table(UPDATERS, (updater_row(member) for member in members))
        pages = table(READS, (page_row(page, recent) for page in PAGES))
        drawn = curves(list(books.seconds)[-_SECONDS_DRAWN:])[:_CURVES_SHOWN]
        lines = [Text(line, no_wrap=True) for line in drawn]
        self.put(Text(phase, style="italic"), updaters, Text(""), pages, *lines)


def screen(*, plain: bool) -> Screen:
    """The live one where there is a terminal to draw on."""
    console = terminal(plain=plain)
    return Live(console) if console else Plain()
