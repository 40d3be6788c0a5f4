"""The screen: a live table, or a line per second where there is no terminal.

The conductor calls it: `say` for something that happened, `show` for the present figures. It measures nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from cacheupdater.demo.lanes import LANES
from cacheupdater.demo.report import HEADINGS, LEGEND, cells

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from rich.console import Console, RenderableType

    from cacheupdater.demo.books import Part

_EVENTS_SHOWN = 4  # lines: with the table and the words it fits into 24


class Screen(Protocol):
    """A live screen or plain lines."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        """Shows an event."""
        ...

    def show(self, phase: str, recent: Part, *, budget: int) -> None:
        """Shows the figures of the last seconds, and the present budget in rows per second."""
        ...


class Lines:
    """Text that is printed and stays."""

    def __exit__(self, *_: object) -> None:
        """Does nothing: printed text stays."""

    def say(self, text: str) -> None:
        """Prints a line."""
        print(f"    {text}", flush=True)


class Plain(Lines):
    """A line per second, for logs and pipes."""

    def __enter__(self) -> Self:
        print("each line, by application: waited, stale, rows/s", flush=True)
        return self

    def show(self, phase: str, recent: Part, *, budget: int) -> None:
        """Prints one line."""
        lanes = []
        for lane in LANES:
            _, waited, stale, _, _, rows, _ = cells(lane, recent.accounts[lane], recent.seconds)
            lanes.append(f"{lane.title}: {waited} {stale} {rows}")
        print(f"{phase}, {budget} rows/s  {' | '.join(lanes)}", flush=True)


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

    def put(self, figures: RenderableType) -> None:
        """Sets the present figures."""
        self._figures = figures
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        words = [Text.assemble((f"{name}: ", "bold"), said, style="dim") for name, said in self._legend]
        events = [Text(f"> {event}", no_wrap=True, overflow="ellipsis") for event in self._events]
        self._live.update(Group(self._figures, Text(""), *words, Text(""), *events), refresh=True)


class Live(Picture):
    """A table of the applications."""

    def __init__(self, console: Console, *, steered: bool) -> None:
        """`steered`: whether keys can be pressed."""
        super().__init__(console, [(lane.title, lane.words) for lane in LANES] + list(LEGEND))
        self._keys = "; + and - change it" if steered else ""

    def show(self, phase: str, recent: Part, *, budget: int) -> None:
        """Draws a new table. Its title stands outside, for a table breaks a title that is wider than the table."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        title = Text(f"{phase}; budget {budget} rows/s each{self._keys}", style="italic", no_wrap=True)
        table = Table(box=None, padding=(0, 2, 0, 0))
        for at, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="right" if at else "left", no_wrap=True)
        for lane in LANES:
            table.add_row(*cells(lane, recent.accounts[lane], recent.seconds))
        self.put(Group(title, table))


def drawn(*, plain: bool) -> bool:
    """Whether there is a terminal to draw on."""
    from rich.console import Console

    return not plain and Console().is_terminal


def screen(*, plain: bool, steered: bool) -> Screen:
    """The live one where there is a terminal to draw on."""
    from rich.console import Console

    return Live(Console(), steered=steered) if drawn(plain=plain) else Plain()
