"""How fast changes may remove keys: a bucket of keys, and the engines that draw from it.

A key that nobody reads need not be loaded again (`fed`): one `Pace` per source lets such keys go as fast as Redis bears. `removing` makes the
pace of a namespace, for keys that may be read. Shared by all engines of this process. Pure: `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

BURST = 1.0  # seconds of the rate: what a short wave of changes removes at once
PACE = 0.1  # seconds of the rate that are saved up before more is asked for: ten requests a second at most
UNREAD_BURST = (
    0.1  # as BURST, for keys that nobody reads: 500 keys, for each takes some 50 us of the event loop
)
UNREAD_PACE = (
    0.02  # as PACE: 100 keys, 5 ms of the event loop. Loads of other keys run between two such requests
)
# Keys a second that nobody reads. Each removal leaves a floor in Redis for a minute, of some 120 bytes: 36 MB at this rate. A
# script for a hundred keys takes half a millisecond of Redis: a fortieth of its time.
UNREAD_RATE = 5000.0


class Pace:
    """The bucket, and who draws from it."""

    __slots__ = ("_bucket", "_burst", "_pace", "_rate", "_takers")

    def __init__(self, rate: Callable[[], float], *, burst: float = BURST, pace: float = PACE) -> None:
        """`rate` gives the keys a second that may be removed now; `burst` and `pace` are seconds of the rate."""
        self._rate = rate
        self._burst = burst
        self._pace = pace
        self._bucket: Bucket | None = None
        self._takers: dict[Hashable, None] = {}

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
        return bucket.when(max(len(self._takers), min(keys, bucket.share(self._pace)), 1))

    def _following(self, now: float) -> Bucket:
        rate = self._rate()
        if self._bucket is None:
            self._bucket = Bucket(
                rate, rate * self._burst, now=-inf
            )  # full: a start costs more time than it saves
        elif self._bucket.rate != rate:
            self._bucket.change(rate, rate * self._burst, now=now)
        return self._bucket


def unread_pace() -> Pace:
    """The pace of keys that nobody reads."""
    return Pace(lambda: UNREAD_RATE, burst=UNREAD_BURST, pace=UNREAD_PACE)
