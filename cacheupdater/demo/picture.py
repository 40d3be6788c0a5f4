"""What a screen is drawn with, in both demonstrations: printed lines, or a picture on a terminal.

The `screen` of each demonstration builds on it and says which figures are shown. The conductor calls the screen: `say` for
something that happened, `show` for the present figures. Nothing here measures.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from rich.console import Console, RenderableType
    from rich.table import Table

_EVENTS_SHOWN = 4  # lines: with the tables and the words they fit into 24


class Shown(Protocol):
    """The part that the screens of both demonstrations have in common."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        """Shows an event."""
        ...


class Lines:
    """Text that is printed and stays, for logs and pipes."""

    head = ""
    """Says what is in each line."""

    def __enter__(self) -> Self:
        print(self.head, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: printed text stays."""

    def say(self, text: str) -> None:
        """Prints a line."""
        print(f"    {text}", flush=True)


class Picture:
    """A picture that is drawn again and again, with a legend and the latest events below."""

    def __init__(self, console: Console, legend: Sequence[tuple[str, str]]) -> None:
        from rich.live import Live as RichLive

        self._live = RichLive(console=console, auto_refresh=False)
        self._events: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self._figures: RenderableType = ""
        self._legend = legend

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Adds the newest event."""
        self._events.append(text)
        self._draw()

    def put(self, *figures: RenderableType) -> None:
        """Sets the present figures, one below the other."""
        from rich.console import Group

        self._figures = Group(*figures)
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        words = [Text.assemble((f"{name}: ", "bold"), said, style="dim") for name, said in self._legend]
        events = [Text(f"> {event}", no_wrap=True, overflow="ellipsis") for event in self._events]
        self._live.update(Group(self._figures, Text(""), *words, Text(""), *events), refresh=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Columns: the first and those without a heading to the left, all others to the right."""
    from rich.table import Table

    drawn = Table(box=None, padding=(0, 2, 0, 0))
    for at, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if at and heading else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def terminal(*, plain: bool) -> Console | None:
    """The terminal to draw on; None if there is none, or if lines are asked for."""
    from rich.console import Console

    if plain:
        return None
    console = Console()
    return console if console.is_terminal else None
