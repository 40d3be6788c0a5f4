"""Is the sampler right? Its share of stale reads in a window, beside the true share by `judge`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from freshness_live.judge import Judged


class Said(NamedTuple):
    """The updater's statement on the reads between two moments (monotonic)."""

    start: float
    end: float
    low: float
    share: float  # of stale reads, between `low` and `high` with 95 % confidence
    high: float
    draws: int


class Window(NamedTuple):
    """The updater's statement, and the truth."""

    said: Said
    true: float

    @property
    def holds(self) -> bool:
        return self.said.low <= self.true <= self.said.high


def said(page: str, *, start: float, end: float) -> Said | None:
    """The statement of the page `/freshness`; None if no read was drawn."""
    source = json.loads(page)["sources"][0]
    if not source["draws"]:
        return None
    names = ("stale_measured_low", "stale_measured", "stale_measured_high", "draws")
    return Said(start, end, *(source[name] for name in names))


def judged_window(one: Said, judged: Judged) -> Window:
    """The statement beside the truth."""
    return Window(one, judged.share(one.start, one.end))
