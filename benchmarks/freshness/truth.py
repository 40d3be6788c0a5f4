"""The judge: which reads saw an old value, how old the value was, and how many rows the database paid.

A policy reports when it refreshed which key (`Refreshes`). The judge compares that with the world's reads and changes, event
by event. A copy is stale from the first change that it has not seen. A read sees the refreshes strictly before it. A read
that waits for a load sees the load's value, so such a refresh is stamped with the last moment before the read. All keys start
with a fresh copy. The judge is the same for every policy and knows none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshness.compiled import Csr, after, compiled

if TYPE_CHECKING:
    from freshness.worlds import World

WINDOWS_S = (1.0, 10.0, 60.0)


@dataclass(frozen=True)
class Refreshes:
    """The times at which each key was loaded. `paid`: times of the rows that the budget paid, if not all."""

    at: Csr
    blocked: int = 0  # reads after the warm-up that waited for a load
    paid: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """Times of all rows, ascending."""
        return np.sort(self.at.times if self.paid is None else self.paid)


@dataclass(frozen=True)
class Verdict:
    """The freshness that readers saw, in shares of the reads, and its cost."""

    stale: float  # share of the reads
    age: float  # mean seconds since the copy became stale, over all reads
    age_p99: float
    rows: float  # per second, after the warm-up
    most: tuple[int, ...]  # rows in the worst window of each of WINDOWS_S, warm-up included
    blocked: float  # share of the reads that waited


def judge(world: World, refreshes: Refreshes) -> Verdict:
    """Judges the world's reads under these refreshes."""
    stale, reads, ages = _judged(world.reads, world.changes, refreshes.at, world.warm)
    rank = int(0.99 * reads) - (reads - stale)  # fresh reads are of age 0
    p99 = float(np.partition(ages, rank)[rank]) if rank >= 0 and stale else 0.0
    rows = refreshes.rows
    return Verdict(
        stale=stale / reads,
        age=float(ages.sum()) / reads,
        age_p99=p99,
        rows=float(np.count_nonzero(rows >= world.warm)) / world.judged,
        most=tuple(busiest(rows, span) for span in WINDOWS_S),
        blocked=refreshes.blocked / reads,
    )


def stale_share(world: World, refreshes: Refreshes) -> float:
    """The share of stale reads alone, for tuning."""
    stale, reads, _ = _judged(world.reads, world.changes, refreshes.at, world.warm)
    return stale / reads


def busiest(rows: np.ndarray, span: float) -> int:
    """The most rows in any window [t, t + span)."""
    if not len(rows):
        return 0
    ends = np.searchsorted(rows, rows + span * (1 - 1e-9), side="left")
    return int((ends - np.arange(len(rows))).max())


@compiled
def _judged(reads, changes, refreshes, warm):
    stale = 0
    count = 0
    ages = np.empty(len(reads.times))
    for key in range(len(reads.start) - 1):
        change, last_change = changes.start[key], changes.start[key + 1]
        refresh, last_refresh = refreshes.start[key], refreshes.start[key + 1]
        for i in range(reads.start[key], reads.start[key + 1]):
            moment = reads.times[i]
            seen = -1.0
            while refresh < last_refresh and refreshes.times[refresh] < moment:
                seen = refreshes.times[refresh]
                refresh += 1
            if seen >= 0 and change < last_change:
                change = after(changes.times, change, last_change, seen)
            if moment < warm:
                continue
            count += 1
            if change < last_change and changes.times[change] < moment:
                ages[stale] = moment - changes.times[change]
                stale += 1
    return stale, count, ages[:stale].copy()
