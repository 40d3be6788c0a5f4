"""How fast changes may remove keys: those that are read as fast as the budget loads them again, the others as fast as Redis bears.

A sender can announce more changes than the budget can serve, and each dropped one removes a value. Without a rate such a
flood would empty a namespace at Redis' speed; with the rate, values come back as fast as they go. One `Removing` per namespace,
shared by all engines of this process. The rate follows the budget, for a fleet moves that. A key that nobody reads need not be
loaded again (`fed`): one `Unread` per source is the pace of all such keys. Pure: `now` is an argument.
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
RATE_MIN = 0.1  # keys a second: even if all of a budget is lent to others, each removal runs in the end
# Keys a second. Each removal leaves a floor in Redis for a minute, of some 120 bytes: 36 MB at this rate. A script for a
# hundred keys takes half a millisecond of Redis: a fortieth of its time.
UNREAD_RATE = 5000.0


class Pace:
    """The bucket, and the engines that draw from it."""

    __slots__ = ("_bucket", "_takers")

    def __init__(self) -> None:
        self._bucket: Bucket | None = None
        self._takers: dict[Hashable, None] = {}

    @property
    def rate(self) -> float:
        """Keys a second."""
        raise NotImplementedError

    def join(self, taker: Hashable) -> None:
        """Keys of a partition wait."""
        self._takers[taker] = None

    def leave(self, taker: Hashable) -> None:
        """No keys of the partition wait any more."""
        self._takers.pop(taker, None)

    def share(self, now: float) -> int:
        """How many keys each of the waiting partitions may remove now."""
        rows = self._following(now).rows(now)
        return max(1, rows // max(1, len(self._takers))) if rows else 0

    def take(self, keys: int, now: float) -> None:
        """So many keys are being removed now."""
        self._following(now).take(keys)

    def when(self, keys: int, now: float) -> float:
        """When it is worth asking again for so many."""
        bucket = self._following(now)
        return bucket.when(max(len(self._takers), min(keys, bucket.share(PACE)), 1))

    def _following(self, now: float) -> Bucket:
        rate = self.rate
        if self._bucket is None:
            self._bucket = Bucket(rate, rate * BURST, now=-inf)  # full: a start costs more time than it saves
        elif self._bucket.rate != rate:
            self._bucket.change(rate, rate * BURST, now=now)
        return self._bucket


class Removing(Pace):
    """The pace of one namespace: dropped changes of keys that may be read."""

    __slots__ = ("_cost", "_quota", "_source")

    def __init__(self, source: Source, quota: Bucket | None, cost: Cost) -> None:
        super().__init__()
        self._source, self._quota, self._cost = source, quota, cost

    @property
    def rate(self) -> float:
        """As the budget loads them again."""
        rate = self._source.bucket.rate / self._cost.per_row
        if self._quota is not None:
            rate = min(rate, self._quota.rate)
        return max(rate, RATE_MIN)


class Unread(Pace):
    """The pace of one source: changed keys that nobody reads."""

    __slots__ = ()

    @property
    def rate(self) -> float:
        """As Redis bears."""
        return UNREAD_RATE
