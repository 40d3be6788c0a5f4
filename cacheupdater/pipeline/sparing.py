"""Says the same thing at most once a second: an outage fails many units, and one line of log tells as much as a hundred.

One per partition; what is not said is counted and told with the next line. The counters in `/metrics` miss nothing.
"""

from __future__ import annotations

EVERY = 1.0  # seconds between two lines about one thing


class Sparing:
    """Keyed by what a line is about: a closed set, such as namespace and kind of error."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def repeats(self, about: tuple[str, str], now: float) -> int | None:
        """How many lines were held back since the last one, or None if this one is held back too."""
        said, held_back = self._said.get(about, (now - EVERY, 0))
        if now - said < EVERY:
            self._said[about] = said, held_back + 1
            return None
        self._said[about] = now, 0
        return held_back
