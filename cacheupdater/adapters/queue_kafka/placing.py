"""Decides at which offset a partition is read, and how many packs are gone.

`ownership` calls `start` when the broker refuses an offset, or when a partition may have begun anew. It is pure. It takes the
wanted offset, or else the earliest one. If the topic no longer has the wanted offset, there are two possible causes. Retention
has removed unfinished packs; or the topic was deleted and made again (or an election cut its log).
"""

from __future__ import annotations

from typing import NamedTuple


class Start(NamedTuple):
    """Where to read from."""

    offset: int
    gone: int = 0  # unfinished packs that cannot be read any more
    reason: str = ""  # "retention" or "reset"


def start(wanted: int | None, *, first: int, end: int) -> Start:
    """`wanted` is the first unfinished offset, or None if none is known. The topic holds the offsets from `first` to `end`."""
    if wanted is None or first <= wanted <= end:
        return Start(first if wanted is None else wanted)
    if wanted < first:
        return Start(first, first - wanted, "retention")
    # How many packs the old topic had left cannot be known, so the reset counts as one.
    return Start(first, 1, "reset")
