"""The prices of all sources of one process, and the policies that compare loads with them.

The service makes one `Pricing` and runs it beside the partitions. It keeps no price itself (`price.market` does). It has what
prices need of the world: a policy for each partition that is gained, our part of each budget (`partition_shares`), reports
(`freshness`) and changes of a budget while we run. Two of its parts reach beyond this process: the file of what was learned
(`remembering`) and the other updaters of the fleet (`sharing`).
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.events import of_quota
from cacheupdater.core.policy import Fixed
from cacheupdater.pipeline.unsound import Unsound
from cacheupdater.price import Market, Price
from cacheupdater.price.shell.freshness import Freshness
from cacheupdater.price.shell.partition_shares import PartitionShares
from cacheupdater.price.shell.remembering import Remembering
from cacheupdater.price.shell.sharing import Purse, Sharing
from cacheupdater.price.succession import take_over

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.budget import Source
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Policy
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Fleet, Observer, State
    from cacheupdater.price.shell.partition_shares import Whole


KEPT_S = 60.0  # seconds: what was learned of a partition is true enough for a rebalance, and no longer


CLOCK_EVERY = (
    10.0  # seconds between two looks at the wall clock: two quartzes drift apart by less than a millisecond
)


class Aim(NamedTuple):
    """What a source's rows shall achieve."""

    target: float | None = None  # share of reads that shall be fresh
    least: float = 0.0  # stale reads that a row must prevent


class Pricing:
    """One market per source."""

    def __init__(
        self,
        namespaces: Sequence[Namespace],
        aims: Mapping[str, Aim],
        *,
        limits: Limits,
        random: Callable[[], float],
        observer: Observer,
        notices: Notices,
    ) -> None:
        """`aims` by the name of the source."""
        now = asyncio.get_running_loop().time()
        self.limits = limits
        self.namespaces = namespaces
        self.markets: dict[Source, Market] = {}
        self.policies: dict[int, Price] = {}
        """By partition; those that are ours, or were a moment ago."""
        priced = [each for each in namespaces if each.terms is not None]
        for source in dict.fromkeys(each.source for each in priced):
            mine = [each for each in priced if each.source is source]
            aim = aims.get(source.name, Aim())
            self.markets[source] = Market(
                source, mine, random=random, now=now, target=aim.target, least=aim.least
            )
        self.freshness = Freshness(list(self.markets.values()), self.policies, observer=observer)
        self._sources = {each.source.name: each.source for each in namespaces}
        self._partition_shares = PartitionShares(namespaces)
        self._without = -inf  # since when nothing has been ours
        self._notices = notices
        self._observer = observer
        self._sharings: dict[str, Sharing] = {}  # by source
        self._quotas: list[Sharing] | None = None  # None: they go with the partitions
        self._remembering: Remembering | None = None
        self._wall: Callable[[], float] | None = None

    async def remember(self, state: State, wall: Callable[[], float], *, partitions: int) -> None:
        """Continue with what was learned before. Called before the first partition is gained. `wall` is the time of day."""
        most = self.limits.learned
        self._remembering = Remembering(state, self.markets, most=most, wall=wall, notices=self._notices)
        await self._remembering.begin(partitions)

    def share(self, fleet: Fleet, wake_up: Callable[[], None], *, quotas: bool) -> None:
        """Spend only our part of each budget. Called before the first partition is gained. `quotas`: only our part of each
        quota too, for each updater of the fleet has a queue of its own and owns all its partitions."""

        unsound = Unsound(self._observer)

        def sharing(what: str, name: str, bucket: Bucket, market: Market | None = None) -> Sharing:
            purse = Purse(what, name, bucket, self._partition_shares.whole(bucket))
            return Sharing(purse, market, fleet, wake_up=wake_up, notices=self._notices, unsound=unsound)

        self._sharings = {
            name: sharing(f"source {name}", name, source.bucket, self.markets.get(source))
            for name, source in self._sources.items()
        }
        if quotas:
            self._quotas = [
                sharing(f"quota of namespace {each.name}", of_quota(each.name), each.quota)
                for each in self.namespaces
                if each.quota is not None
            ]

    def follow(self, before: Pricing, wholes: Mapping[Bucket, Whole], keyspace: Keyspace[Namespace]) -> None:
        """Goes on where the pricing of another configuration has ended. Nothing is ours between the two.

        `wholes` has the whole rates of all our buckets: those that stay hold our part of them.
        """
        now = asyncio.get_running_loop().time()
        self.limits, self._wall, self._remembering = before.limits, before._wall, before._remembering
        self._partition_shares.follow(wholes)
        self._set_clock()
        known = {market.source.name: market for market in before.markets.values()}
        for source, market in self.markets.items():
            last = known.get(source.name)
            if last is not None and last.source.timed == source.timed:
                market.price = last.price
        if self._remembering is not None:
            self._remembering.follow(self.markets)
        for partition, policy in before.policies.items() if self.markets else ():
            own = Price(keyspace, self.namespaces, self.markets, limits=self.limits, now=now)
            take_over(own, policy, keyspace)
            self.policies[partition] = own
        self._without = now

    def divide(self, wall: Callable[[], float]) -> None:
        """Others may own partitions of our queue. Called before the first one is gained. `wall` is the time of day."""
        self._wall = wall
        self._set_clock()

    def own(self, partitions: Collection[int], *, of: int) -> None:
        """These partitions, out of so many, are ours from now on. A rebalance takes all and gives most of them back in a
        moment. Only then is it clear what can be forgotten."""
        now = asyncio.get_running_loop().time()
        if self._quotas is None:
            self._partition_shares.own(partitions, now, of=of, sources=not self._sharings)
        if not partitions:
            self._without = now
        for gone in self.policies.keys() - set(partitions) if partitions else ():
            del self.policies[gone]

    def policy(self, keyspace: Keyspace[Namespace], partition: int, now: float) -> Policy:
        """For a partition that was just gained."""
        if not self.markets:
            return Fixed()
        known = self.policies.get(partition)
        if known is not None and now < self._without + KEPT_S:
            known.join(now)
            return known
        policy = Price(keyspace, self.namespaces, self.markets, limits=self.limits, now=now)
        self.policies[partition] = policy
        if self._remembering is not None:
            self._remembering.restore(policy, keyspace, partition, now)
        return policy

    def change(self, name: str, rate: float, burst: float, *, now: float) -> None:
        """Another budget for this source. A source that no namespace uses has no bucket to change."""
        if name in self._sharings:
            self._sharings[name].change(rate, burst, now=now)
        elif name in self._sources:
            self._partition_shares.change(self._sources[name], rate, burst, now=now)

    def require(self, name: str, least: float) -> None:
        """Another least gain for this source."""
        for source, market in self.markets.items():
            if source.name == name:
                market.least = least

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.freshness.run())
            if self._wall is not None:
                group.create_task(self._keep_time())
            for sharing in self._shared():
                group.create_task(sharing.run())
            if self._remembering is not None:
                group.create_task(self._remembering.run(self.policies))

    def _shared(self) -> Iterator[Sharing]:
        yield from self._sharings.values()
        yield from self._quotas or ()

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_EVERY)
            self._set_clock()

    def _set_clock(self) -> None:
        if self._wall is not None:
            self._partition_shares.divide(self._wall() - asyncio.get_running_loop().time())

    async def leave(self, but: Pricing) -> None:
        """`but` follows us: leaves the records of the fleet that it does not go on with."""
        kept = {each.name for each in but._shared()}
        await asyncio.gather(*(each.leave() for each in self._shared() if each.name not in kept))

    async def end(self) -> None:
        """Everything is drained, and `run` is over."""
        await asyncio.gather(*(each.leave() for each in self._shared()))
        if self._remembering is not None:
            await self._remembering.save(self.policies)
