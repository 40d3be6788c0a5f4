"""Does the sampler tell the truth? What it says of the reads of a window, beside what `judge` knows of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from freshness_live.judge import Judged


class Said(NamedTuple):
    """By the updater, of the reads between two moments (monotonic)."""

    start: float
    end: float
    low: float
    share: float  # of stale reads, between `low` and `high` with 95 % confidence
    high: float
    draws: int


class Window(NamedTuple):
    """What was said, and the truth."""

    said: Said
    true: float

    @property
    def holds(self) -> bool:
        return self.said.low <= self.true <= self.said.high


def said(page: str, *, start: float, end: float) -> Said | None:
    """From the page `/freshness`; None: nothing was drawn."""
    source = json.loads(page)["sources"][0]
    if not source["draws"]:
        return None
    names = ("stale_measured_low", "stale_measured", "stale_measured_high", "draws")
    return Said(start, end, *(source[name] for name in names))


def judged_window(one: Said, judged: Judged) -> Window:
    """Beside the truth."""
    return Window(one, judged.share(one.start, one.end))
