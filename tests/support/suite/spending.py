"""Compares spending over time with a budget, in all windows at once."""

from __future__ import annotations

from math import inf


def worst(spent, rate):
    """The burst that the fullest window needed: the most rows above `rate` times a window's length, over all windows."""
    above, lowest, most, last = 0.0, inf, 0.0, None
    for at, rows in sorted(spent):
        if last is not None:
            above -= rate * (at - last)
        last = at
        lowest = min(lowest, above)
        above += rows
        most = max(most, above - lowest)
    return most
