"""Everything that is made of one configuration: namespaces, loaders, prices, and the surroundings of the partitions.

The service has one `Generation` at a time. A reload makes the next one from the present one (`next`), and the present one goes
on until all its partitions are handed over. So no key is served by two configurations. What outlives a configuration goes
over: the levels of buckets, what was learned of keys, verdicts, open databases.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from cacheupdater.core.engine import Engine
from cacheupdater.pipeline.partition import Partition
from cacheupdater.pipeline.surroundings import Surroundings
from cacheupdater.service.components import Components

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from cacheupdater.config.settings import Config
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Gained, Observer, Queue
    from cacheupdater.price.shell.pricing import Pricing


class Generation:
    """The parts that belong together because one configuration has made them."""

    def __init__(
        self,
        config: Config,
        components: Components,
        namespaces: list[Namespace],
        *,
        around: Surroundings,
        pricing: Pricing,
    ) -> None:
        self.config = config
        self.components = components
        self.around = around
        self.pricing = pricing
        self._namespaces = namespaces

    @classmethod
    def first(
        cls, config: Config, stack: AsyncExitStack, queue: Queue, *, observer: Observer, notices: Notices
    ) -> Generation:
        """The generation with which a process begins. May raise Misconfigured."""
        components = Components(config, stack)
        namespaces = components.namespaces(asyncio.get_running_loop().time())
        around = Surroundings(
            queue,
            {each: components.recipe(each.name) for each in namespaces},
            components.writer(),
            observer,
            random=random.random,
            notices=notices,
            log_keys=config.log_keys,
            judged=True,
            listens=[str(each) for each in config.listen],
            wall=time.time,  # noqa: TID251  the clock by which senders date hints
        )
        pricing = components.pricing(namespaces, observer, notices)
        return cls(config, components, namespaces, around=around, pricing=pricing)

    async def prepared(self, config: Config, stack: AsyncExitStack) -> Components:
        """The components of another configuration, with all their loaders. Raises CacheUpdaterError, and then leaves
        nothing open."""
        components = Components(config, stack, self.components)
        try:
            for name in config.namespaces:
                components.recipe(name)
        except BaseException:
            await components.give_up()
            raise
        return components

    def next(self, components: Components) -> Generation:
        """The generation after this one, whose partitions have all been handed over."""
        namespaces = components.namespaces(asyncio.get_running_loop().time())
        recipes = {each: components.recipes[each.name] for each in namespaces}
        around = self.around.under(recipes, components.unchanged)
        pricing = components.pricing(namespaces, around.observer, around.notices)
        pricing.follow(self.pricing, components.wholes(), around.keyspace)
        return Generation(components.config, components, namespaces, around=around, pricing=pricing)

    @property
    def prefixes(self) -> list[bytes]:
        """The beginnings of the keys that clients shall send."""
        return self.around.keyspace.prefixes

    def make(self, gained: Gained, wake_all: Callable[[], None]) -> Partition:
        """A gained partition. Its new engine knows what was learned before, and nothing else."""
        keyspace = self.around.keyspace
        engine = Engine(
            keyspace,
            self.pricing.policy(keyspace, gained.partition, asyncio.get_running_loop().time()),
            limits=self.pricing.limits,
            random=self.around.random,
            offset=gained.offset,
            clock=self.around.redis_clock,
        )
        return Partition(gained, engine, around=self.around, wake_all=wake_all)
