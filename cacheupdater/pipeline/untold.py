"""An observer and troubles that nobody asks, for commands: they print what they find.

`connection_check` and `waiting` give `UNTOLD` to a depot, which reports to it as it would in an updater.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.events import QueueEvent
    from cacheupdater.core.metrics import Metric


class Untold:
    """Forgets everything."""

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:
        """As `Observer`."""

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        """As `Observer`."""

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        """As `Observer`."""

    def end(self, metric: Metric, *, label: str = "") -> None:
        """As `Observer`."""

    def trouble(self, event: QueueEvent, subject: str, text: str) -> None:
        """As `Troubles`."""

    def over(self, event: QueueEvent, subject: str) -> None:
        """As `Troubles`."""


UNTOLD = Untold()
