"""What one configuration makes in the simulated world: `service.generation` over fake ports.

Each `Updater` makes the first one, and the real `Turnover` goes from one to the next. All configurations say the same.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.pipeline.surroundings import Surroundings
from cacheupdater.price.shell.partition_shares import Whole
from cacheupdater.price.shell.pricing import Aim, Pricing
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.patterns import Pattern
from simulated.database import SimLoader, body_of

PATTERNS = {b"a:": Pattern.compile("a:{id:int}"), b"b:": Pattern.compile("b:{id:int}")}
SAME = SimpleNamespace(sources={}, namespaces={}, fed=(), forwards=False)
"""The configuration, as far as a turnover looks at it."""


class SimGeneration:
    """The parts of one configuration in one process."""

    config = SAME
    prefixes = ()

    def __init__(self, updater, world, before=None):
        self._updater, self._world, self.before = updater, world, before
        plan, now = world.plan, world.seen.clock()
        self._quota = before._quota if before else Bucket(plan.quota, plan.quota, now=now)
        bucket = before.source.bucket if before else Bucket(plan.budget, plan.burst, now=now)
        self.source = Source("main", bucket, concurrency=plan.concurrency)
        self.components = Components()
        self._writer = before._writer if before else world.planted.writer(world.cache, updater.process, world)
        namespaces = [self._namespace(prefix, pattern) for prefix, pattern in PATTERNS.items()]
        recipes = {each: self._recipe(each) for each in namespaces}
        self.around = before.around.under(recipes, ()) if before else self._surroundings(recipes)
        self.pricing = self._pricing(namespaces)

    def _namespace(self, prefix, pattern):
        plan = self._world.plan
        return Namespace(
            name=prefix.decode(),
            pattern=pattern,
            source=self.source,
            every=plan.every if prefix == b"a:" else 0.0,
            ttl=plan.ttl,
            fail_safe=plan.fail_safe,
            missing_ttl=plan.missing_ttl,
            max_backlog=plan.max_backlog,
            quota=self._quota if plan.quota and prefix == b"b:" else None,
            terms=self._terms(prefix[:1]),
        )

    def _terms(self, letter):
        plan = self._world.plan
        stamp = "" if letter == b"b" else plan.stamp
        return Terms(plan.worth, plan.max_age, stamp) if letter in plan.priced else None

    def _recipe(self, namespace):
        plan = self._world.plan
        return Recipe(
            loader=self._loader(namespace.pattern.prefix),
            writer=self._writer,
            encode=body_of,
            ttl=plan.ttl,
            form="json",
            replace=plan.replace,
        )

    def _loader(self, prefix):
        world = self._world
        loader = SimLoader(world.database, self._updater.process, world, prefix=prefix)
        world.planted.loader(loader)
        return loader

    def _surroundings(self, recipes):
        world = self._world
        return Surroundings(
            self._updater.consumer,
            recipes,
            self._writer,
            Observer(),
            world.random.random,
            Notices(world.seen.clock),
        )

    def _pricing(self, namespaces):
        plan, around = self._world.plan, self.around
        pricing = Pricing(
            namespaces,
            {"main": Aim(least=plan.least_gain)},
            limits=plan.limits,
            random=around.random,
            observer=around.observer,
            notices=around.notices,
        )
        if self.before:
            pricing.follow(self.before.pricing, self._wholes(), around.keyspace)
            return pricing
        if plan.group:
            pricing.divide(asyncio.get_running_loop().time)  # all machines' clocks agree
        for market in pricing.markets.values():
            market.price = plan.price  # to begin with; the market moves on from there
        return pricing

    def _wholes(self):
        plan = self._world.plan
        return {
            self.source.bucket: Whole(plan.budget, plan.burst),
            self._quota: Whole(plan.quota, plan.quota),
        }

    # --- as `service.generation` ------------------------------------------------------------------------

    async def prepared(self, config, stack):
        """New loaders take a moment."""
        del config, stack
        await asyncio.sleep(self._world.latency())
        return self.components

    def next(self, prepared):
        del prepared
        following = SimGeneration(self._updater, self._world, self)
        self.before = None
        self._world.planted.reload(following)
        return following

    def make(self, gained, wake_all):
        return self._updater.make(gained, wake_all)


class Observer(RecordingObserver):
    """Shows nothing."""

    def show(self, namespaces, sources, feeds):
        """Every configuration has the same ones."""


class Components:
    """All that a turnover asks of components: nothing is opened and closed here, and no fleet is told."""

    unchanged = frozenset(prefix.decode() for prefix in PATTERNS)

    def share(self, pricing, wake_up):
        """There is no fleet."""

    async def close_others(self):
        """Nothing is open."""
