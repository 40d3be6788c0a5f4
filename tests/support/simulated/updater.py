"""The real updater in one process of the simulated world: supervisor, partitions and engines over fake ports.

A crash makes a new `Updater`; nothing in memory outlives it. The engine is watched in one respect: it counts the keys that it
gives up by reason, and the checkers need to know the keys.
"""

from __future__ import annotations

import asyncio

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.partition import Partition
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.pipeline.supervisor import Supervisor
from cacheupdater.pipeline.surroundings import Surroundings
from cacheupdater.price import Price
from cacheupdater.price.shell.pricing import Aim, Pricing
from cacheupdater.testing.memory_redis import MemoryPauses
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.patterns import Pattern
from simulated.adapter import AdapterConsumer
from simulated.broker import Consumer
from simulated.database import SimLoader, body_of
from simulated.disk import SimState, keys_in, price_in
from simulated.fleet import SimFleet
from simulated.group import GroupConsumer
from simulated.history import OWNED, Drop, Restart
from simulated.process import Process
from simulated.topic import own

PATTERNS = {b"a:": Pattern.compile("a:{id:int}"), b"b:": Pattern.compile("b:{id:int}")}


class SimEngine(Engine):
    """The engine, which also records the keys that it gives up: its own counts are by reason only."""

    seen = None

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        put = self.quarantine.put

        def put_and_note(key, error, now):
            put(key, error, now)
            self._note_drops([key], "quarantined")

        self.quarantine.put = put_and_note
        without = self._pausing.without_paused

        def without_and_note(hints):
            left = without(hints)
            if left is not hints:
                self._note_drops(sorted(set(hints.keys) - set(left.keys)), "paused")
            return left

        self._pausing.without_paused = without_and_note
        outside = self._drops.outside_quarantine

        def outside_and_note(keys, *rest, **named):
            left, freed = outside(keys, *rest, **named)
            self._note_drops(sorted(set(keys) - {*left, *freed}), "quarantined")
            return left, freed

        self._drops.outside_quarantine = outside_and_note

    def _account_for_drops(self):
        for dropped in self._dedup.schedule.shedding.dropped:
            self._note_drops(dropped.keys, dropped.reason)
        super()._account_for_drops()

    def _note_drops(self, keys, reason):
        self.seen.drops += [Drop(self.seen.clock(), OWNED.get(), key, reason) for key in keys]


class SimPrice(Price):
    """The policy, which also records the touches that it declines: its own counts are without keys."""

    seen = None

    def on_hints(self, keys, counts, now):
        worthy = super().on_hints(keys, counts, now)
        self.seen.declined += [(self.seen.clock(), key) for key in sorted(set(keys) - set(worthy))]
        return worthy


class Updater:
    """One updater process, from its start to its end."""

    def __init__(self, name, world, instance, disk):
        self.process = Process(name)
        self.disk = disk
        if world.plan.group and world.plan.group.adapter:
            self.consumer = AdapterConsumer(world.broker, self.process, world, instance)
            world.planted.adapter(self.consumer.queue)
        elif world.plan.group:
            self.consumer = GroupConsumer(world.broker, self.process, world, instance)
            world.planted.member(self.consumer)
        else:
            self.consumer = Consumer(world.broker, self.process, world)
        self._world = world
        self.fleet = SimFleet(world.cache, self.process)
        self._beside = []
        self._learned = {}  # by partition: the keys in the file
        self._build()
        self.leaving = False
        self.main = self.process.start(self._told(self._run()))
        world.seen.starts_of_processes[name] = world.seen.clock()

    def _build(self):
        world, plan = self._world, self._world.plan
        now = world.seen.clock()
        self.source = Source("main", Bucket(plan.budget, plan.burst, now=now), concurrency=plan.concurrency)
        writer = world.planted.writer(world.cache, self.process, world)
        quota = Bucket(plan.quota, plan.quota, now=now) if plan.quota else None
        self.namespaces = [
            Namespace(
                name=prefix.decode(),
                pattern=pattern,
                source=self.source,
                every=plan.every if prefix == b"a:" else 0.0,
                ttl=plan.ttl,
                fail_safe=plan.fail_safe,
                missing_ttl=plan.missing_ttl,
                max_backlog=plan.max_backlog,
                quota=quota if prefix == b"b:" else None,
                terms=self._terms(prefix[:1]),
            )
            for prefix, pattern in PATTERNS.items()
        ]
        recipes = {
            each: Recipe(
                loader=self._loader(each.pattern.prefix),
                writer=writer,
                encode=body_of,
                ttl=plan.ttl,
                form="json",
                replace=plan.replace,
            )
            for each in self.namespaces
        }
        self.observer = RecordingObserver()
        notices = Notices(world.seen.clock)
        self.around = Surroundings(
            self.consumer, recipes, writer, self.observer, world.random.random, notices
        )
        self.supervisor = Supervisor(self.consumer, self._make, owns=self._own)
        world.planted.supervisor(self.supervisor)
        self._keyspace = Keyspace([(each.pattern, each) for each in self.namespaces])
        self.pricing = Pricing(
            self.namespaces,
            {"main": Aim(least=plan.least_gain)},
            limits=plan.limits,
            random=world.random.random,
            observer=self.observer,
            notices=notices,
        )
        if plan.group:
            self.pricing.divide(asyncio.get_running_loop().time)  # all machines' clocks agree
        for market in self.pricing.markets.values():
            market.price = plan.price  # to begin with; the market moves on from there

    def _terms(self, letter):
        plan = self._world.plan
        stamp = "" if letter == b"b" else plan.stamp
        return Terms(plan.worth, plan.max_age, stamp) if letter in plan.priced else None

    def _loader(self, prefix):
        loader = SimLoader(self._world.database, self.process, self._world, prefix=prefix)
        self._world.planted.loader(loader)
        return loader

    def _own(self, partitions):
        """Takes the part of every rate that goes with these partitions."""
        self.pricing.own(partitions, of=self._world.broker.partitions)

    def _make(self, gained, wake_all):
        own(gained, self.process)
        engine = SimEngine(
            self._keyspace,
            self._policy(gained.partition),
            limits=self._world.plan.limits,
            random=self._world.random.random,
            offset=gained.offset,
        )
        engine.seen = self._world.seen
        self._world.planted.engine(engine)
        self._world.cursors[OWNED.get()] = engine.cursor
        partition = Partition(gained, engine, around=self.around, wake_all=wake_all)
        self._world.planted.partition(partition)
        execute = partition.execute

        async def execute_as_owner():
            own(gained, self.process)
            await execute()

        partition.execute = execute_as_owner
        return partition

    def _policy(self, partition):
        seen = self._world.seen
        policy = self.pricing.policy(self._keyspace, partition, seen.clock())
        if isinstance(policy, Price):
            policy.__class__, policy.seen = SimPrice, seen
            saved = self._learned.pop(partition, None)
            if saved is not None:
                known = saved & set(policy.table.keys)
                seen.restarts.append(Restart(seen.clock(), self.process.name, saved, known))
        return policy

    async def _run(self):
        await self._begin_beyond()
        await self.supervisor.run()

    async def _begin_beyond(self):
        """Begins as the service does before it gains its first partition: reads the file, then joins the fleet."""
        world, pricing = self._world, self.pricing
        if world.plan.state:
            state = SimState(self.disk, self.process, world)
            world.planted.state(state)
            await pricing.remember(state, world.wall, partitions=world.broker.partitions)
            self._compare(state.found)
        if world.plan.fleet:
            pricing.share(self.fleet, self.supervisor.wake_all, quotas=False)
        world.planted.pricing(pricing)
        works = [each.run() for each in pricing._sharings.values()]  # the tasks that only report take no part
        if world.plan.paused:
            works.append(self._look_for_pauses())
        if world.plan.state:
            works.append(pricing._remembering.run(pricing.policies))
        self._beside = [self.process.start(self._told(each)) for each in works]

    async def _look_for_pauses(self):
        """As `Paused.follow` does, more often."""
        pauses = MemoryPauses(self._world.cache.server)
        while True:
            await self.around.paused.look(pauses, self.supervisor.partitions)
            await asyncio.sleep(self._world.random.uniform(0.01, 0.05))

    def _compare(self, found):
        """Compares the saved state with the known one; keys are compared when their partitions come."""
        seen, price = self._world.seen, price_in(found)
        if price is not None:
            known = self.pricing.markets[self.source].price
            seen.restarts.append(Restart(seen.clock(), self.process.name, price, known))
        self._learned = keys_in(found, self._world.broker.partitions, wall=self._world.wall())

    async def _told(self, work):
        """Records an end of `work` that is not the end of its process: that is a fault."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as e:  # noqa: BLE001
            if not self.process.dead:
                self._world.seen.died.append((self._world.seen.clock(), self.process.name, _flat(e)))

    async def leave(self, within):
        """Leaves as the service does at SIGTERM."""
        self.leaving = True
        await self.supervisor.drain(within)
        for each in self._beside:
            each.cancel()
        await self.pricing.end()
        await self.consumer.close()

    @property
    def engines(self):
        return [each.engine for each in self.supervisor.partitions.values()]

    @property
    def idle(self):
        engines = self.engines
        permits = self.source.slots.taken == 0  # otherwise a late refresh is still under way
        return permits and not any(engine.pending or engine.tracked for engine in engines)


def _flat(error):
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_flat, error.exceptions))
    return repr(error)
