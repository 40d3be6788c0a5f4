"""The part of every rate that goes with the partitions that this process owns.

A budget or a quota is configured for all updaters together. If several share a queue's partitions and no fleet is named, an
owner of 3 out of 12 may spend a quarter of each. `price.shell.pricing` makes one `PartitionShares` and reports every change of
ownership to it: a loss before others hear that they may gain, a gain before its first load. So the parts of all living
owners never exceed the whole. An owner that was thought dead and wakes up finds out within a heartbeat.

An updater that owns nothing has closed buckets, and a bucket opens empty: moving to and fro never saves up a burst.

If a partition's part of a burst is less than one row, it cannot be saved up. Then each partition has beats on the wall clock
(`core.beats`), whichever updater owns it, and however many others that updater owns. If one owner saved up and others had
beats, they would exceed the whole together. Only an owner of all partitions has a bucket, less the beat that others might
have at the same time.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.beats import Beats, Grid, Wall, grid, within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.budget import Source
    from cacheupdater.core.namespace import Namespace


class Whole(NamedTuple):
    """What all updaters together may spend: a second, and at once."""

    rate: float
    burst: float


class PartitionShares:
    """The shares of one process."""

    def __init__(self, namespaces: Sequence[Namespace]) -> None:
        """The buckets hold the whole rates."""
        self._sources = {each.source.bucket: _whole(each.source.bucket) for each in namespaces}
        self._quotas = {
            each.quota: (_whole(each.quota), each.source.bucket)
            for each in namespaces
            if each.quota is not None
        }
        self._since: dict[int, float] = {}  # our partitions, and from when on they are ours
        self._of = 1
        self._wall: Wall | None = None
        self._with_sources = True

    def follow(self, wholes: Mapping[Bucket, Whole]) -> None:
        """Buckets of the configuration before hold our part of its rates. These are the whole ones from now on."""
        self._sources = {bucket: _at_least_one(wholes[bucket]) for bucket in self._sources}
        self._quotas = {
            bucket: (_at_least_one(wholes[bucket]), source) for bucket, (_, source) in self._quotas.items()
        }

    def whole(self, bucket: Bucket) -> Whole:
        """The whole rate of a source's bucket or a quota's."""
        return self._sources[bucket] if bucket in self._sources else self._quotas[bucket][0]

    def divide(self, ahead: float) -> None:
        """Other updaters own the other partitions. They follow the same wall clock, which is so far ahead of our clock."""
        if self._wall is None:
            self._wall = Wall(ahead)
        self._wall.ahead = ahead

    def own(self, partitions: Collection[int], now: float, *, of: int, sources: bool) -> None:
        """These partitions, out of so many, are ours. `sources` is False if a fleet decides about the rates of the sources."""
        whole = len(self._since) == self._of  # then no other owner has used the beats so far
        self._since = {each: now if whole else self._since.get(each, now) for each in partitions}
        self._of, self._with_sources = max(of, 1), sources
        self._apply(now)

    def change(self, source: Source, rate: float, burst: float, *, now: float) -> None:
        """Another whole budget for this source."""
        self._sources[source.bucket] = _at_least_one(Whole(rate, burst))
        self._since = dict.fromkeys(self._since, now)  # the beats may have moved
        self._apply(now)

    def _apply(self, now: float) -> None:
        for bucket, whole, base in self._all():
            if not self._since:
                bucket.until = now
                continue
            turns = within(base, *whole) if base else grid(*whole)
            self._share(bucket, whole, turns, now)
            bucket.open(inf)

    def _share(self, bucket: Bucket, whole: Whole, turns: Grid, now: float) -> None:
        part, alone = len(self._since) / self._of, len(self._since) >= self._of
        burst = whole.burst * part
        if self._wall is not None and whole.burst < self._of:
            if not alone or whole.burst < turns.amount + 1.0:
                beats = Beats(turns, self._since, of=self._of, wall=self._wall)
                bucket.follow(beats, turns.rate * part, now=now)
                return
            burst = whole.burst - turns.amount
        bucket.change(whole.rate * part, burst, now=now)

    def _all(self) -> Iterator[tuple[Bucket, Whole, Grid | None]]:
        """Each bucket with its whole budget or quota. The beats of a quota lie within those of its source."""
        for bucket, whole in self._sources.items() if self._with_sources else ():
            yield bucket, whole, None
        for quota, (whole, source) in self._quotas.items():
            base = self._sources[source]
            beating = self._with_sources and base.burst < self._of
            yield quota, whole, grid(*base) if beating else None


def _at_least_one(whole: Whole) -> Whole:
    """A whole burst is at least a row, as a bucket's is."""
    return whole._replace(burst=max(whole.burst, 1.0))


def _whole(bucket: Bucket) -> Whole:
    return Whole(bucket.rate, bucket.burst)
