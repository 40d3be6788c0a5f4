"""Where to begin to read a partition, and what is gone.

Asked by the queue when a partition is gained, and when the broker refuses the place where it reads. A pure decision:
what was committed, or else the earliest. A committed place that the topic no longer has tells of one of two things: retention has
removed what nobody had finished, or the topic was deleted and made anew (or its log was cut at an election).
"""

from __future__ import annotations

from typing import NamedTuple


class Start(NamedTuple):
    """Read from here."""

    offset: int
    gone: int = 0  # packs that nobody has finished and nobody can read
    reason: str = ""  # "retention" or "reset"


def start(wanted: int | None, *, first: int, end: int) -> Start:
    """`wanted` is the first that is not finished, None if nobody knows; the topic holds `first` up to `end`."""
    if wanted is None or first <= wanted <= end:
        return Start(first if wanted is None else wanted)
    if wanted < first:
        return Start(first, first - wanted, "retention")
    # How much the old topic held beyond cannot be known any more: that it happened counts as one.
    return Start(first, 1, "reset")
