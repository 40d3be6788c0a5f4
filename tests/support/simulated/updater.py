"""The real updater in one process of the simulated world: supervisor, partitions and engines over fake ports.

A crash makes a new `Updater`; nothing in memory outlives it. The engine is watched in one respect: it counts the keys that it
gives up by reason, and the checkers need to know the keys.
"""

from __future__ import annotations

import asyncio

from cacheupdater.core.engine import Engine
from cacheupdater.pipeline.partition import Partition
from cacheupdater.price import Price
from cacheupdater.service.difference import Difference
from cacheupdater.service.turnover import Turnover
from cacheupdater.testing.memory_redis import MemoryPauses
from simulated.adapter import AdapterConsumer
from simulated.broker import Consumer
from simulated.disk import SimState, keys_in, price_in
from simulated.fleet import SimFleet
from simulated.generation import SAME, Observer, SimGeneration
from simulated.group import GroupConsumer
from simulated.history import OWNED, UNREAD, Drop, Restart
from simulated.memory_queue import MemoryConsumer
from simulated.process import Process
from simulated.topic import own


class SimEngine(Engine):
    """The engine, which also records the keys that it gives up: its own counts are by reason only."""

    seen = None

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        put = self.quarantine.put

        def put_and_note(key, error, now, **more):
            put(key, error, now, **more)
            self._note_drops([key], "quarantined")

        self.quarantine.put = put_and_note
        without = self._pausing.without_paused

        def without_and_note(hints):
            left = without(hints)
            if left is not hints:
                self._note_drops(sorted(set(hints.keys) - set(left.keys)), "paused")
            return left

        self._pausing.without_paused = without_and_note
        remove_unread = self._drops.remove_unread

        def remove_and_note(keys, open_pack):
            self._note_drops(keys, UNREAD)
            remove_unread(keys, open_pack)

        self._drops.remove_unread = remove_and_note
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
        elif world.plan.fed and world.plan.fed.memory:
            self.consumer = MemoryConsumer(world.broker, self.process, world)
        else:
            self.consumer = Consumer(world.broker, self.process, world)
        self._world = world
        self.fleet = SimFleet(world.cache, self.process)
        self._beside = []
        self._feeding = []  # readers of feeds
        self.owned = set(), 1  # the partitions whose part of every rate it takes, and of how many
        self._learned = {}  # by partition: the keys in the file
        self.turnover = Turnover(SimGeneration(self, world), self, stack=None, observer=Observer())
        self.supervisor = self.turnover.supervisor
        self._owns, self.supervisor._owns = self.supervisor._owns, self._own
        world.planted.supervisor(self.supervisor)
        self.leaving = False
        self._reload = None
        self.main = self.process.start(self._told(self._run()))
        world.seen.starts_of_processes[name] = world.seen.clock()

    # --- as a turnover sees the service -----------------------------------------------------------------

    @property
    def queue(self):
        return self.consumer

    @property
    def partitions(self):
        """Of the whole queue."""
        return self._world.broker.partitions

    def declare(self, prefixes):
        """Nobody is connected."""

    def reload(self):
        """Reads the same configuration again, as the service does: one reload at a time."""
        if self._reload is None or self._reload.done():
            going = self.turnover.go_over(SAME, Difference())
            self._reload = self.process.start(self._told(going))

    @property
    def pricing(self):
        return self.turnover.now.pricing

    @property
    def source(self):
        return self.turnover.now.source

    @property
    def around(self):
        return self.turnover.now.around

    def _own(self, partitions):
        self.owned = set(partitions), self.partitions
        self._owns(partitions)

    def make(self, gained, wake_all):
        """A gained partition."""
        own(gained, self.process)
        engine = SimEngine(
            self.around.keyspace,
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
        policy = self.pricing.policy(self.around.keyspace, partition, seen.clock())
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
            partitions = world.broker.partitions  # the topic may grow while the file is being read
            await pricing.remember(state, world.wall, partitions=partitions)
            self._compare(state.found, partitions)
        if world.plan.fleet:
            pricing.share(self.fleet, self.supervisor.wake_all, quotas=False)
        world.planted.pricing(pricing)
        works = [each.run() for each in pricing._sharings.values()]  # the tasks that only report take no part
        if world.plan.paused:
            works.append(self._look_for_pauses())
        if world.plan.state:
            works.append(pricing._remembering.run(pricing.policies))
        self._beside = [self.process.start(self._told(each)) for each in works]

        if world.fed is not None:
            self._feeding = [self.process.start(self._told(each)) for each in world.fed.works(self)]

    async def _look_for_pauses(self):
        """As `Paused.follow` does, more often."""
        pauses = MemoryPauses(self._world.cache.server)
        while True:
            await self.around.paused.look(pauses, self.supervisor.partitions)
            await asyncio.sleep(self._world.random.uniform(0.01, 0.05))

    def _compare(self, found, partitions):
        """Compares the saved state with the known one; keys are compared when their partitions come."""
        seen, price = self._world.seen, price_in(found)
        if price is not None:
            known = self.pricing.markets[self.source].price
            seen.restarts.append(Restart(seen.clock(), self.process.name, price, known))
        self._learned = keys_in(found, partitions, wall=self._world.wall())

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
        for each in self._feeding:
            each.cancel()
        await self.supervisor.drain(within)
        for each in self._beside:
            each.cancel()
        await self.pricing.end()
        await self.consumer.close()

    @property
    def engines(self):
        return [each.engine for each in self.supervisor.partitions.values()]

    def ask_least(self, least):
        """From now on a row must prevent at least so many stale reads, or the policy does not ask for it."""
        for market in self.pricing.markets.values():
            market.least = least

    @property
    def idle(self):
        engines = self.engines
        permits = self.source.slots.taken == 0  # otherwise a late refresh is still under way
        return permits and not any(engine.pending or engine.tracked for engine in engines)


def _flat(error):
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_flat, error.exceptions))
    return repr(error)
