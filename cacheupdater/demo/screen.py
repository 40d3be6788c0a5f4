"""What the audience sees: a table that lives, or a line per second where there is no terminal.

The conductor calls it: `say` for something that happened, `show` for the present figures. It measures nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from cacheupdater.demo.lanes import LANES
from cacheupdater.demo.report import HEADINGS, LEGEND, cells

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console, RenderableType

    from cacheupdater.demo.report import Accounts

_EVENTS_SHOWN = 8  # lines


class Screen(Protocol):
    """Either of the two."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        """Something has happened."""
        ...

    def show(self, phase: str, accounts: Accounts, seconds: float) -> None:
        """The figures of the last `seconds`."""
        ...


class Plain:
    """A line per second, for logs and pipes."""

    def __enter__(self) -> Self:
        print(f"each line, by application: {', '.join(HEADINGS[1:4])}, {', '.join(HEADINGS[6:])}", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left behind."""

    def say(self, text: str) -> None:
        """A line of its own."""
        print(f"    {text}", flush=True)

    def show(self, phase: str, accounts: Accounts, seconds: float) -> None:
        """One line."""
        lanes = []
        for lane in LANES:
            shown = cells(lane, accounts[lane], seconds)
            lanes.append(f"{lane.title}: {' '.join((*shown[1:4], *shown[6:]))}")
        print(f"{phase:>9}  {' | '.join(lanes)}", flush=True)


class Live:
    """A table that is drawn again and again, with the latest events below."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live as RichLive

        self._live = RichLive(console=console, auto_refresh=False)
        self._events: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self._table: RenderableType = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """The newest of the events."""
        self._events.append(text)
        self._draw()

    def show(self, phase: str, accounts: Accounts, seconds: float) -> None:
        """A new table."""
        from rich.table import Table

        table = Table(title=f"{phase}; figures of the last {seconds:.0f} s", title_justify="left")
        for at, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="right" if at else "left", no_wrap=True)
        for lane in LANES:
            table.add_row(*cells(lane, accounts[lane], seconds))
        self._table = table
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        legend = [Text.assemble((f"{name}: ", "bold"), words, style="dim") for name, words in LEGEND]
        lanes = [Text.assemble((f"{lane.title}: ", "bold"), lane.words, style="dim") for lane in LANES]
        events = [Text(f"> {event}") for event in self._events]
        self._live.update(Group(self._table, *lanes, *legend, Text(""), *events), refresh=True)


def screen(*, plain: bool) -> Screen:
    """The live one where there is a terminal to draw on."""
    if not plain:
        from rich.console import Console

        console = Console()
        if console.is_terminal:
            return Live(console)
    return Plain()
