"""The updater as it is, in one process of the simulated world: supervisor, partitions and engines over fake ports.

A crash makes a new `Updater`; nothing in memory outlives one. The engine is watched in one respect: it counts what
it gives up by reason, and the checkers need to know which keys those were.
"""

from __future__ import annotations

import asyncio

from cacheupdater.core.budget import Bucket, Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace, Pattern
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.policy import Fixed
from cacheupdater.core.price import Market, Price
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.partition import Partition, Surroundings
from cacheupdater.pipeline.portions import Portions
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.pipeline.supervisor import Supervisor
from cacheupdater.testing.recording_observer import RecordingObserver
from simulated.adapter import AdapterConsumer
from simulated.broker import Consumer
from simulated.database import SimLoader
from simulated.group import GroupConsumer
from simulated.history import OWNED, Drop
from simulated.process import Process
from simulated.topic import own

PATTERNS = {b"a:": Pattern.compile("a:{id:int}"), b"b:": Pattern.compile("b:{id:int}")}


class SimEngine(Engine):
    """The engine, with a look at the keys that it gives up: it counts them by reason only."""

    seen = None

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        put = self.quarantine.put

        def put_and_note(key, error, now):
            put(key, error, now)
            self._note_drops([key], "quarantined")

        self.quarantine.put = put_and_note

    def _account_for_drops(self):
        for dropped in self._dedup.schedule.dropped:
            self._note_drops(dropped.keys, dropped.reason)
        super()._account_for_drops()

    def _outside_quarantine(self, keys, *rest, **named):
        outside, freed = super()._outside_quarantine(keys, *rest, **named)
        self._note_drops(sorted(set(keys) - {*outside, *freed}), "quarantined")
        return outside, freed

    def _note_drops(self, keys, reason):
        self.seen.drops += [Drop(self.seen.clock(), OWNED.get(), key, reason) for key in keys]


class SimPrice(Price):
    """The policy, with a look at the touches that it declines: they are counted without their keys."""

    seen = None

    def on_hints(self, keys, counts, now):
        worthy = super().on_hints(keys, counts, now)
        self.seen.declined += [(self.seen.clock(), key) for key in sorted(set(keys) - set(worthy))]
        return worthy


class Updater:
    """One updater process, from its start to its end."""

    def __init__(self, name, world, instance=None):
        self.process = Process(name)
        if world.plan.group and world.plan.group.adapter:
            self.consumer = AdapterConsumer(world.broker, self.process, world, instance)
            world.plant.adapter(self.consumer.queue)
        elif world.plan.group:
            self.consumer = GroupConsumer(world.broker, self.process, world, instance)
            world.plant.member(self.consumer)
        else:
            self.consumer = Consumer(world.broker, self.process, world)
        self._world = world
        self._build()
        self.leaving = False
        self.main = self.process.start(self._run())
        world.seen.starts_of_processes[name] = world.seen.clock()

    def _build(self):
        world, plan = self._world, self._world.plan
        now = world.seen.clock()
        self.source = Source("main", Bucket(plan.budget, plan.budget, now=now), concurrency=plan.concurrency)
        writer = world.plant.writer(world.cache, self.process, world)
        quota = Bucket(plan.quota, plan.quota, now=now) if plan.quota else None
        self.namespaces = [
            Namespace(
                name=prefix.decode(),
                pattern=pattern,
                source=self.source,
                every=plan.every if prefix == b"a:" else 0.0,
                missing_ttl=plan.missing_ttl,
                max_backlog=plan.max_backlog,
                quota=quota if prefix == b"b:" else None,
                terms=Terms(worth=plan.worth, max_age=plan.max_age) if prefix[:1] in plan.priced else None,
            )
            for prefix, pattern in PATTERNS.items()
        ]
        recipes = {
            each: Recipe(
                loader=SimLoader(world.database, self.process, world, prefix=each.pattern.prefix),
                writer=writer,
                encode=lambda version: b"%d" % version,
                ttl=plan.ttl,
                form="json",
            )
            for each in self.namespaces
        }
        self.observer = RecordingObserver()
        self.around = Surroundings(
            self.consumer, recipes, writer, self.observer, world.random.random, Notices(lambda: 0.0)
        )
        self._portions = Portions(self.namespaces)
        self.supervisor = Supervisor(self.consumer, self._make, owns=self._own)
        world.plant.supervisor(self.supervisor)
        self._keyspace = Keyspace([(each.pattern, each) for each in self.namespaces])
        priced = [each for each in self.namespaces if each.terms]
        self._market = Market(self.source, priced, random=world.random.random, now=now, least=plan.least_gain)
        self._market.price = plan.price  # to begin with; the market moves on from there

    def _own(self, partitions):
        """The part of every rate that goes with these."""
        now, part = self._world.seen.clock(), len(partitions) / self._world.broker.partitions
        self._portions.own(self._world.plant.part(part), now, sources=True)

    def _make(self, gained, stir_all):
        own(gained, self.process)
        engine = SimEngine(
            self._keyspace,
            self._policy(),
            limits=self._world.plan.limits,
            random=self._world.random.random,
            offset=gained.offset,
        )
        engine.seen = self._world.seen
        self._world.plant.engine(engine)
        self._world.cursors[OWNED.get()] = engine.cursor
        partition = Partition(gained, engine, around=self.around, stir_all=stir_all)
        self._world.plant.partition(partition)
        execute = partition.execute

        async def execute_as_owner():
            own(gained, self.process)
            await execute()

        partition.execute = execute_as_owner
        return partition

    def _policy(self):
        world = self._world
        if not world.plan.priced:
            return Fixed()
        markets = {self.source: self._market}
        policy = SimPrice(
            self._keyspace, self.namespaces, markets, limits=world.plan.limits, now=world.seen.clock()
        )
        policy.seen = world.seen
        return policy

    async def _run(self):
        try:
            await self.supervisor.run()
        except asyncio.CancelledError:
            raise
        except BaseException as e:  # noqa: BLE001  whatever it is, it is a finding
            if not self.process.dead:
                self._world.seen.died.append((self._world.seen.clock(), self.process.name, _flat(e)))

    async def leave(self, within):
        """As the service does at SIGTERM."""
        self.leaving = True
        await self.supervisor.drain(within)
        await self.consumer.close()

    @property
    def engines(self):
        return [each.engine for each in self.supervisor.partitions.values()]

    @property
    def idle(self):
        engines = self.engines
        permits = self.source.free == self._world.plan.concurrency  # else a late refresh is still under way
        return permits and not any(engine.pending or engine.tracked for engine in engines)


def _flat(error):
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_flat, error.exceptions))
    return repr(error)
