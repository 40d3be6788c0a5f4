"""What a namespace may spend on rows that do not exist: a part of its quota, or of its source's budget where it has no quota.

A load of an absent row costs as much as any other, and brings nothing. A stranger who asks for random keys would get a whole
quota for them. So absent rows are charged to this bucket as well, after their load, if they were asked for by misses of
unseen keys (`seen`). The bucket may go into debt. While it is in debt, misses of unseen keys wait, and everything else goes on.
A row that exists is never charged, so new keys are held up only while somebody asks for many that do not exist.

One per namespace, shared by all engines of the process. `outcomes` charges it once a load has found no row, and `schedule` asks it. The rate follows the
bucket that it is a part of, for a fleet and a group move that. Pure: `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.budget import Cost, Source

BURST_S = 10.0
"""Seconds of the rate that a quiet time saves up: a page that names a dozen deleted products holds nobody up."""

RATE_MIN = 0.01
"""Rows a second: even if all of a budget is lent to others, a debt is over in the end."""


class AbsentBucket:
    """The absent rows of one namespace."""

    __slots__ = ("_at", "_cost", "_level", "_quota", "_share", "_source", "charged", "waiting")

    def __init__(self, source: Source, quota: Bucket | None, cost: Cost, *, share: float) -> None:
        self.waiting = 0
        """Misses of unseen keys that wait, in all engines."""
        self.charged = 0
        """All absent rows that were ever charged."""
        self._source, self._quota, self._cost = source, quota, cost
        self._share = share
        self._level = 0.0  # rows; it starts empty, so that a restart loop cannot spend bursts
        self._at = inf  # the latest time that was seen; inf: none

    @property
    def rate(self) -> float:
        """Absent rows a second."""
        if self._quota is not None:
            return max(RATE_MIN, self._share * self._quota.rate)
        return max(RATE_MIN, self._share * self._source.bucket.rate / self._cost.per_row)

    def level(self, now: float) -> float:
        """The rows that are saved up; a debt, if negative."""
        if now > self._at:
            self._level = min(max(1.0, BURST_S * self.rate), self._level + (now - self._at) * self.rate)
        if now > self._at or self._at == inf:
            self._at = now
        return self._level

    def in_debt(self, now: float) -> bool:
        """Whether misses of unseen keys wait."""
        return self.level(now) < 0.0

    def paid(self, now: float) -> float:
        """When the debt will be paid."""
        return now + max(0.0, -self.level(now)) / self.rate

    def charge(self, rows: int, now: float) -> None:
        """So many rows of unseen keys were asked for, and do not exist."""
        self._level = self.level(now) - rows
        self.charged += rows

    def succeed(self, before: AbsentBucket) -> None:
        """This bucket goes on where that one ends: a reload forgives no debt."""
        self._level, self._at = min(0.0, before._level), before._at
