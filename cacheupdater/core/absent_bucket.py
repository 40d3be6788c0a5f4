"""What a namespace may spend on rows that do not exist: a part of its quota, or of its source's budget where it has no quota.

A load of an absent row costs as much as any other, and brings nothing. A stranger who asks for random keys would get a whole
quota for them. So absent rows are charged to this bucket as well, after their load, if they were asked for by misses of
unseen keys (`seen`). A debt makes the namespace *wary*, until the bucket is full again. The units of a wary namespace hold at
most as many unseen keys as the bucket can pay for if no row exists. Further unseen keys wait, and everything else goes on. A
row that exists costs this bucket nothing. So honest readers soon get their new keys, even beside a flood of made-up keys.

One per namespace, shared by all engines of the process. `outcomes` charges it once a load has found no row, `payment` sets
rows apart, and `schedule` asks how many may start. A fleet and a group change the rate of a quota and of a budget, so the
rate is read anew each time. Pure: `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.budget import Cost, Source

BURST_S = 10.0
"""Seconds of the rate that a quiet time saves up: a page that names a dozen deleted products holds nobody up."""

DEBT_S = 1.0
"""Seconds of the rate that a debt may hold up new keys. The units that start before the first absent row is known are paid by
the quota, and the rest of their debt is forgiven: a quota's burst would hold up honest readers for ten times as long."""

LOOK_S = 0.05
"""Until a look at rows that are set apart: a unit of another engine may give them back at any time."""

RATE_MIN = 0.01
"""Rows a second: even if all of a budget is lent to others, a debt is over in the end."""


class AbsentBucket:
    """The absent rows of one namespace."""

    __slots__ = (
        "_apart",
        "_at",
        "_cost",
        "_level",
        "_quota",
        "_share",
        "_source",
        "_wary",
        "charged",
        "waiting",
    )

    def __init__(self, source: Source, quota: Bucket | None, cost: Cost, *, share: float) -> None:
        self.waiting = 0
        """Misses of unseen keys that wait, in all engines."""
        self.charged = 0
        """All absent rows that were ever charged."""
        self._source, self._quota, self._cost = source, quota, cost
        self._share = share
        self._level = 0.0  # rows; it starts empty, so that a restart loop cannot spend bursts
        self._at = inf  # the latest time that was seen; inf: none
        self._apart = 0  # unseen keys of units under way
        self._wary = False

    @property
    def rate(self) -> float:
        """Absent rows a second."""
        if self._quota is not None:
            return max(RATE_MIN, self._share * self._quota.rate)
        return max(RATE_MIN, self._share * self._source.bucket.rate / self._cost.per_row)

    @property
    def _full(self) -> float:
        return max(1.0, BURST_S * self.rate)

    def level(self, now: float) -> float:
        """The rows that are saved up; a debt, if negative."""
        if now > self._at:
            self._level = min(self._full, self._level + (now - self._at) * self.rate)
        if now > self._at or self._at == inf:
            self._at = now
        return self._level

    def is_wary(self, now: float) -> bool:
        """Whether unseen keys may start only as far as this bucket pays for them."""
        if self._wary and self.level(now) >= self._full:
            self._wary = False
        return self._wary

    def room(self, now: float) -> float:
        """How many unseen keys may start now."""
        return max(0, int(self.level(now)) - self._apart) if self.is_wary(now) else inf

    def opens_at(self, now: float) -> float:
        """When an unseen key may start, or is worth another look."""
        if self.room(now) >= 1:
            return now
        short = 1.0 - self.level(now)
        return now + (short / self.rate if short > 0.0 else LOOK_S)

    def set_apart(self, keys: int) -> None:
        """A unit with so many unseen keys has started (ended, if negative)."""
        self._apart += keys

    def charge(self, rows: int, now: float) -> None:
        """So many rows of unseen keys were asked for, and do not exist."""
        level = self.level(now) - rows
        self._wary = self._wary or level < 0.0
        self._level = max(level, -max(1.0, DEBT_S * self.rate))
        self.charged += rows

    def succeed(self, before: AbsentBucket) -> None:
        """This bucket goes on where that one ends: a reload forgives no debt."""
        self._level, self._at, self._wary = min(0.0, before._level), before._at, before._wary
