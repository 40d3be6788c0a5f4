"""Finds the stale reads: those before which a higher version had been committed.

Pure numpy over the records of readers and writer, which share the machine's monotonic clock. A change counts from the moment
at which the writer knew of its commit: a fraction of a millisecond late, which favours no policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshness_live.reader import ABSENT

if TYPE_CHECKING:
    from freshness_live.reader import Reads


class Changes(NamedTuple):
    """The changes as the writer saves them. Rows begin with version 1, and each change adds one."""

    times: np.ndarray
    keys: np.ndarray
    versions: np.ndarray


class Judged(NamedTuple):
    """The judged reads, one line each."""

    began: np.ndarray
    stale: np.ndarray
    found: np.ndarray

    def share(self, start: float, end: float) -> float:
        """The share of stale reads among those that began in this time. A read that found nothing is not stale."""
        within = self._within(start, end)
        return float(self.stale[within].mean()) if within.any() else 0.0

    def missing(self, start: float, end: float) -> int:
        """Reads for which Redis had nothing."""
        return int((~self.found[self._within(start, end)]).sum())

    def per_second(self, start: float, end: float) -> float:
        return float(self._within(start, end).sum() / (end - start))

    def _within(self, start: float, end: float) -> np.ndarray:
        return (self.began >= start) & (self.began < end)


def judge(reads: Reads, changes: Changes) -> Judged:
    """Compares each read with the commits before it."""
    order = np.lexsort((changes.versions, changes.keys))
    keys, times = changes.keys[order], changes.times[order]
    asked, seen = reads.keys.ravel(), reads.versions.ravel()
    began = np.repeat(reads.began, reads.keys.shape[1])
    # the change that made a read's version old: version 2 is the first in the key's part of the log
    first = np.searchsorted(keys, asked, side="left")
    last = np.searchsorted(keys, asked, side="right")
    next_one = first + seen - 1
    inherited = seen == 0  # older than the run: every row was at version 1 by then
    known = (seen > 0) & (next_one < last)
    at = np.full(len(seen), np.inf)
    at[known] = times[next_one[known]]
    at[inherited] = -np.inf
    found = seen != ABSENT
    return Judged(began, found & (at <= began), found)
