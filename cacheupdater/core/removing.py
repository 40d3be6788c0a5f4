"""How fast dropped changes may remove keys of a namespace: no faster than its budget loads them again.

Whoever may send hints can announce changes that nobody can serve, and each takes a value away. Without a rate of its
own such a flood would empty a namespace at Redis' speed; with it, what is taken away comes back as fast. One per
namespace, shared by all engines of this process; it follows the budget, for a fleet moves that. Pure: `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cacheupdater.core.budget import Cost, Source

BURST = 1.0  # seconds of the rate: what a short wave of dropped changes removes at once
PACE = 0.1  # seconds of the rate that are saved up before more is asked for: ten requests a second at most
RATE_MIN = 0.1  # keys a second: a budget that is lent to others altogether still lets each removal through in the end


class Removing:
    """The bucket, and who draws from it."""

    __slots__ = ("_bucket", "_cost", "_quota", "_source", "_takers")

    def __init__(self, source: Source, quota: Bucket | None, cost: Cost) -> None:
        self._source, self._quota, self._cost = source, quota, cost
        self._bucket: Bucket | None = None
        self._takers: dict[Hashable, None] = {}

    def join(self, taker: Hashable) -> None:
        """Keys of a partition wait."""
        self._takers[taker] = None

    def leave(self, taker: Hashable) -> None:
        """None do any more."""
        self._takers.pop(taker, None)

    def share(self, now: float) -> int:
        """How many keys one of those that wait may remove now."""
        rows = self._following(now).rows(now)
        return max(1, rows // max(1, len(self._takers))) if rows else 0

    def take(self, keys: int, now: float) -> None:
        """They are on their way."""
        self._following(now).take(keys)

    def when(self, keys: int, now: float) -> float:
        """When it is worth asking again for so many."""
        bucket = self._following(now)
        return bucket.when(max(len(self._takers), min(keys, bucket.share(PACE)), 1))

    def _following(self, now: float) -> Bucket:
        rate = self._source.bucket.rate / self._cost.per_row
        if self._quota is not None:
            rate = min(rate, self._quota.rate)
        rate = max(rate, RATE_MIN)
        if self._bucket is None:
            self._bucket = Bucket(rate, rate * BURST, now=-inf)  # full: a start costs more time than it saves
        elif self._bucket.rate != rate:
            self._bucket.change(rate, rate * BURST, now=now)
        return self._bucket
