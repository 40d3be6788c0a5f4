"""What happened to the reads and loads of each namespace of a source: totals, and a decayed memory of the last minute.

Written by `policy` in batches, read by `market` (the estimate steers a freshness target) and by `report`.
One per market; arrays by the number of the namespace.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cacheupdater.price.index import Doubles

READS, STALE, AGED, LOADS, CHANGES, HINTED = range(6)
"""Reads; of those the expected stale ones; those of values older than `max_age`; loads for touches, except adopting ones; of
those the loads that found a change; announced changes."""

MEMORY = 60.0
"""Seconds: what "lately" means on every screen."""


class Meter:
    """Six counts per namespace."""

    def __init__(self, spaces: int) -> None:
        self.total = np.zeros((6, spaces))
        self.recent = np.zeros((6, spaces))

    def add(self, what: int, spaces: NDArray[np.intp], amounts: Doubles) -> None:
        """`amounts` of `what`, each for the namespace beside it."""
        if self.total.shape[1] == 1:
            sums = np.array([amounts.sum()])
        else:
            sums = np.bincount(spaces, weights=amounts, minlength=self.total.shape[1])
        self.total[what] += sums
        self.recent[what] += sums

    def advance(self, dt: float) -> None:
        """Some seconds have passed."""
        self.recent *= exp(-dt / MEMORY)

    def share(self, what: int, of: int, space: int | None = None) -> float:
        """The part of one count in another, lately; 0 if there was nothing."""
        part, whole = (
            row.sum() if space is None else row[space] for row in (self.recent[what], self.recent[of])
        )
        return float(part / whole) if whole > 1e-9 else 0.0
