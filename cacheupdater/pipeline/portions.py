"""The part of every rate that goes with the partitions that this process owns.

A budget and a quota are said for all updaters together. Where several share a queue's partitions and no fleet is named,
an owner of 3 out of 12 may spend a quarter of each. `pipeline.pricing` makes one `Portions` and tells it of every change
of ownership: of a loss before others hear that they may gain, of a gain before its first load. So the parts of all
living owners never come to more than the whole; one that was thought dead and wakes up finds out within a heartbeat.

Who owns nothing has closed buckets, and a bucket opens empty: moving to and fro never saves up a burst.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.budget import Bucket, Source
    from cacheupdater.core.namespace import Namespace


class _Whole(NamedTuple):
    rate: float
    burst: float


class Portions:
    """One process's."""

    def __init__(self, namespaces: Sequence[Namespace]) -> None:
        """The buckets hold the whole rates."""
        self._sources = {each.source.bucket: _whole(each.source.bucket) for each in namespaces}
        self._quotas = {each.quota: _whole(each.quota) for each in namespaces if each.quota is not None}
        self._part = 1.0

    def own(self, part: float, now: float, *, sources: bool) -> None:
        """Of all rates; `sources` is False where a fleet decides about those of the sources."""
        self._part = part
        for bucket, whole in ((self._sources if sources else {}) | self._quotas).items():
            self._apply(bucket, whole, now)

    def change(self, source: Source, rate: float, burst: float, *, now: float) -> None:
        """Another whole for this source."""
        whole = self._sources[source.bucket] = _Whole(rate, burst)
        self._apply(source.bucket, whole, now)

    def _apply(self, bucket: Bucket, whole: _Whole, now: float) -> None:
        if not self._part:
            bucket.until = now
            return
        bucket.change(whole.rate * self._part, whole.burst * self._part, now=now)
        bucket.until = inf


def _whole(bucket: Bucket) -> _Whole:
    return _Whole(bucket.rate, bucket.burst)
