"""One schedule from beginning to end: build, run, inject faults, heal, wait until all is idle, judge.

All random numbers come from one generator of the seed, and nothing else decides the order of events: the same seed makes the
same history, in any interpreter.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from cacheupdater.testing.memory_redis import MemoryPauses
from cacheupdater.testing.virtual_loop import VirtualLoop
from simulated import adapter, bypass, cache, disk, feeds, fleet, invariants
from simulated.application import Application
from simulated.broker import Broker
from simulated.cache import EPOCH, Cache, SimWriter
from simulated.database import Database
from simulated.disk import ALIENS, Disk
from simulated.faults import OUTSIDE, TO_FEEDS, TO_FLEETS, Faults
from simulated.feeds import Feeds
from simulated.generation import PATTERNS
from simulated.group import Group
from simulated.history import Seen
from simulated.memory_queue import MemoryQueues
from simulated.plan import FILLED_S, LONG_OUTAGE_S
from simulated.process import Process, task_factory
from simulated.topic import SESSION_S
from simulated.updater import Updater

IDLE_WITHIN = (
    180.0  # virtual seconds after everything is healed: a policy refreshes until it has forgotten the reads
)
# After so many of these seconds no row is worth its price any more. A policy with a large budget and few keys may refresh one key
# after the other for ever, so only chance would bring a moment without a refresh.
SPENDS_FOR = 90.0
NOTHING_PAYS = 1e6  # stale reads that a row must prevent
LOOK_EVERY = 0.1
CLOCK_JUMP_S = 35.0  # above load_age: tokens become too old
SHOWN_WITHIN = 0.7  # of the busy time: faults of shares need the rest to show


class PlantedFault:
    """Changes nothing: a schedule without a planted fault. Its subclasses in `planted_faults` each plant one."""

    name = ""
    fed = False  # whether it concerns schedules with a feed

    def writer(self, cache, process, world):
        return SimWriter(cache, process, world)

    def loader(self, loader):
        """Changes a loader before it begins."""

    def engine(self, engine):
        """As above."""

    def partition(self, partition):
        """As above."""

    def member(self, consumer):
        """As above, if the queue is a group and its members are our model of the adapter."""

    def adapter(self, queue):
        """As above, if the members are the real adapter."""

    def state(self, state):
        """As above: one process' door to the file."""

    def supervisor(self, supervisor):
        """As above."""

    def pricing(self, pricing):
        """As above: the parts of rates, the fleet and the file of learned state."""

    def sink(self, sink):
        """As above: where a process's feeds put their keys."""

    def reader(self, reader):
        """As above: one reader of a feed."""

    def reload(self, generation):
        """As above: the parts of the configuration that follows."""

    def plan(self, plan):
        return plan

    def concerns(self, plan):
        """Whether a schedule has the parts that this planted fault changes."""
        return True


@dataclass
class Outcome:
    """The results of a schedule."""

    seed: int
    violations: list
    fired: dict
    seconds: float  # virtual
    seen: Seen = field(repr=False)


def _queue_of(plan):
    """The kind of queue."""
    if plan.fed and plan.fed.memory:
        return MemoryQueues
    return Group if plan.group else Broker


class World:
    """All parts of one schedule."""

    def __init__(self, plan, planted, trace):
        self.plan = plan
        self.planted = planted
        self.random = Random(f"world {plan.seed}")
        self.faults = Faults(plan.rates, self.random)
        self.seen = Seen(asyncio.get_running_loop().time, trace, lag=plan.lag)
        self.keys = [b"%s%d" % (prefix, n) for prefix in PATTERNS for n in range(plan.keys)]
        self.broker = _queue_of(plan)(plan.partitions, self)
        self.cache = Cache(self)
        self.database = Database(self)
        self.fed = None  # the logs, once there is something to tell
        self.changes = []
        self.cursors = {}  # by ownership
        self.busy = True
        self.applications = []
        self.updaters = []
        self._born = 0
        self._chaos = []

    def latency(self):
        """The latency of a call without faults: mostly a fraction of a millisecond, sometimes a few."""
        return self.random.random() ** 4 * 0.02 + 0.0002

    def slow(self, between):
        return self.random.uniform(*between)

    async def run(self):
        plan = self.plan
        for key in self.keys:
            if self.random.random() < 0.7:
                self.database.commit(key)
        self.database.poison = self.random.choice(self.keys)
        if plan.fed:
            self.fed = Feeds(self)
            self._chaos.append(asyncio.get_running_loop().create_task(bypass.work(self)))
            if plan.fed.last:
                truncating = bypass.truncate_during_loads(self)
                self._chaos.append(asyncio.get_running_loop().create_task(truncating))
        self.updaters = [self._updater() for _ in range(plan.updaters)]
        self.applications = [self._application() for _ in range(plan.applications)]
        self._plan_chaos()
        if plan.paused:
            self._chaos.append(asyncio.get_running_loop().create_task(self._operate()))
        if plan.reloads:
            self._chaos.append(asyncio.get_running_loop().create_task(self._reload()))
        watching = asyncio.get_running_loop().create_task(self._watch())
        await asyncio.sleep(plan.busy)
        await self._heal()
        idle = await self._until_idle()
        if watching.done():
            watching.result()  # it watches until it is cancelled, so this raises why it has ended
        watching.cancel()
        return idle

    # --- parts ------------------------------------------------------------------------------------------

    def _name(self, kind):
        self._born += 1
        return f"{kind}{self._born}"

    def wall(self):
        """The time of day."""
        return EPOCH + self.seen.clock()

    def _updater(self, instance=None, disk=None):
        """A new updater. Without an instance id it is a new static member; without a disk it has no file yet."""
        if self.plan.group and self.plan.group.static and instance is None:
            instance = self._name("instance")
        return Updater(self._name("updater"), self, instance, disk or Disk())

    def _successor(self, updater):
        """An updater at the same place, under the same name."""
        return self._updater(updater.consumer.instance, updater.disk)

    def _application(self):
        return Application(Process(self._name("app")), self)

    def check_room(self, consumer, partition):
        """M1: a partition at its cap reads no further."""
        for updater in self.updaters:
            held = updater.supervisor.partitions.get(partition)
            if updater.consumer is consumer and held is not None:
                self.seen.over_caps += invariants.reads_on(held.engine.pending, self.plan.limits.pending)

    def is_deceived(self, process):
        """Whether it takes a part of every rate that is another's by now: it has not heard what the group has decided."""
        holders = self.broker.holders
        [updater] = [each for each in self.updaters if each.process is process]
        owned, of = updater.owned
        return bool(owned) and (
            of != self.broker.partitions
            or any(holders[each] and holders[each].process != process.name for each in owned)
        )

    # --- the operator -----------------------------------------------------------------------------------

    async def _operate(self):
        """Pauses a namespace for a while, again and again. Each process learns of it at a time of its own."""
        random = Random(f"operator of world {self.plan.seed}")
        pauses = MemoryPauses(self.cache.server)
        while self.busy:
            await asyncio.sleep(random.uniform(0.0, self.plan.busy / self.plan.paused))
            name = random.choice(list(PATTERNS))
            await pauses.pause(name, b"")
            await asyncio.sleep(random.uniform(0.05, self.plan.busy / self.plan.paused))
            await pauses.resume(name)

    async def _reload(self):
        """Has one updater after the other read its configuration again."""
        random = Random(f"reloads of world {self.plan.seed}")
        while self.busy:
            await asyncio.sleep(random.expovariate(self.plan.reloads / self.plan.busy))
            alive = [each for each in self.updaters if not each.process.stopped and not each.leaving]
            if alive and self.busy:
                self.seen.note("a reload")
                random.choice(alive).reload()

    # --- what goes wrong from outside -------------------------------------------------------------------

    def _plan_chaos(self):
        loop, random = asyncio.get_running_loop(), self.random
        for kind in (*OUTSIDE, *TO_FEEDS) if self.plan.fed else OUTSIDE:
            times = self.plan.rates.get(kind, 0.0)
            count = int(times) + (random.random() < times % 1)
            since, until = 0.1, self.plan.busy * (SHOWN_WITHIN if kind in TO_FLEETS else 1.0)
            if self.plan.away:  # after the first values, and over before the end
                since, until = FILLED_S, until - LONG_OUTAGE_S
            for _ in range(count):
                at = random.uniform(since, until)
                loop.call_later(at, self._strike, kind)

    def _strike(self, kind):
        if self.busy:
            self.faults.fired[kind] += 1
            self.seen.note("FAULT", kind)
            self._chaos.append(asyncio.get_running_loop().create_task(getattr(self, f"_{kind}")()))

    def _some_updater(self):
        alive = [each for each in self.updaters if not each.process.stopped and not each.leaving]
        return self.random.choice(alive) if alive else None

    async def _updater_crash(self):
        updater = self._some_updater()
        if updater is not None:
            await self._crash(updater)

    async def _crash(self, updater):
        self.updaters.remove(updater)
        updater.process.kill()
        await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))
        if self.random.random() < 0.5:  # the queue notices late
            self.updaters.append(self._successor(updater))
            await asyncio.sleep(SESSION_S)
            self.broker.leave(updater.consumer)
        else:
            self.broker.leave(updater.consumer)
            self.updaters.append(self._successor(updater))

    async def _updater_pause(self):
        updater = self._some_updater()
        if updater is None:
            return
        updater.process.stop()
        length = self.random.choice((0.1, 0.5, 1.0, 2.0, 5.0))
        if self.random.random() < 0.02:
            length = 40.0  # beyond load_age
        if length > SESSION_S:
            await asyncio.sleep(SESSION_S)
            self.broker.expel(updater.consumer)
            if self.random.random() < 0.5:
                self.updaters.append(self._updater())
        await asyncio.sleep(length)
        updater.process.resume()
        if length > SESSION_S:
            await asyncio.sleep(self.random.uniform(0.0, 0.3))
            if not updater.process.dead:
                self.broker.rejoin(updater.consumer)

    async def _updater_stop(self):
        updater = self._some_updater()
        if updater is None:
            return
        leaving = updater.process.start(updater.leave(self.random.choice((0.2, 1.0))))
        if self.random.random() < 0.5:
            self.updaters.append(self._updater())
        if self.random.random() < 0.5:  # a rebalance at the worst of times
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
            self.broker.move()
        await asyncio.wait([leaving])
        _, late = await asyncio.wait([updater.main], timeout=10.0)
        if late:
            self.seen.died.append((self.seen.clock(), updater.process.name, "did not end after its drain"))
        if not leaving.cancelled() and leaving.exception() is not None:
            self.seen.died.append((self.seen.clock(), updater.process.name, repr(leaving.exception())))
        updater.process.kill()
        if updater in self.updaters:
            self.updaters.remove(updater)
        if updater.consumer.instance is not None:
            await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))
            self.updaters.append(self._successor(updater))
        elif not self.updaters:
            self.updaters.append(self._successor(updater))

    async def _queue_move(self):
        self.broker.move()

    async def _group_restart(self):
        updater = self._some_updater()
        if updater is None:
            return
        self.updaters.remove(updater)
        updater.process.kill()
        away = self.random.uniform(0.0, 0.8 * SESSION_S)
        await asyncio.sleep(away)
        self.updaters.append(self._successor(updater))
        await asyncio.sleep(SESSION_S - away)
        self.broker.leave(updater.consumer)

    async def _group_storm(self):
        for _ in range(self.random.randint(3, 5)):
            self.broker.move()
            await asyncio.sleep(self.random.uniform(0.0, 0.15))

    async def _group_commits_lost(self):
        self.broker.forget_commits()

    async def _group_retention(self):
        self.broker.retain()

    async def _group_anew(self):
        self.broker.begin_anew()

    async def _group_growth(self):
        self.broker.grow()
        await asyncio.sleep(self.random.uniform(0.0, 0.3))
        for each in self.applications:
            each.client.look_again()

    async def _redis_outage(self):
        self.cache.down = True
        await asyncio.sleep(self.random.choice((0.1, 0.5, 1.5)))
        self.cache.down = False

    async def _redis_pause(self):
        self.cache.paused = True
        await asyncio.sleep(self.random.choice((0.1, 0.5, 1.5)))
        self.cache.resume()

    async def _redis_restart(self):
        self.cache.restart()

    async def _redis_evicts_value(self):
        self.cache.server.delete(self.random.choice(self.keys))

    async def _redis_evicts_floor(self):
        self.cache.evict_floor(self.random.choice(self.keys))

    async def _redis_clock_ahead(self):
        self.cache.jump_ahead(CLOCK_JUMP_S)

    async def _fleet_lost(self):
        """Loses the record. Often one member is cut off too, as when it cannot reach a server that replaces the old."""
        self.cache.records.lose()
        if self.random.random() < 0.5:
            await self._fleet_cut_off()

    async def _fleet_cut_off(self):
        updater = self._some_updater()
        if updater is not None:
            updater.fleet.cut_off = True
            await asyncio.sleep(self.random.choice((0.3, 1.0, 2.0)))  # a claim lives for 0.75
            updater.fleet.cut_off = False

    async def _state_gone(self):
        if self.updaters:
            self.random.choice(self.updaters).disk.put(None)

    async def _state_alien(self):
        if self.updaters:
            self.random.choice(self.updaters).disk.put(self.random.choice(ALIENS))

    async def _db_outage(self):
        began, self.database.down = self.seen.clock(), True
        await asyncio.sleep(self.random.choice(self.plan.outages))
        self.database.down = False
        self.seen.outages.append((began, self.seen.clock()))

    async def _app_crash(self):
        application = self.random.choice(self.applications)
        application.process.kill()

    def _some_log(self):
        return self.random.choice(self.fed.logs)

    async def _feed_outage(self):
        log = self._some_log()
        log.down = True
        log.cut()
        await asyncio.sleep(self.random.choice((0.1, 0.5, 1.5)))
        log.down = False

    async def _feed_lost(self):
        self.fed.lose(self._some_log())

    async def _feed_reader_cut(self):
        self._some_log().cut()

    async def _feed_reader_killed(self):
        reading = self.fed.reading()
        if reading:
            await self._crash(self.random.choice(reading))

    async def _feed_reader_frozen(self):
        """The database gives the turn to another process, and the frozen one does not know it."""
        reading = [each for each in self.fed.reading() if not (each.process.stopped or each.leaving)]
        if not reading:
            return
        process = self.random.choice(reading).process
        process.stop()
        await asyncio.sleep(self.random.uniform(0.0, feeds.SESSION_S))
        for log in self.fed.logs:
            if log.turn is not None and log.turn.process is process:
                log.cut()
        await asyncio.sleep(self.random.uniform(0.0, 2 * feeds.SESSION_S))
        process.resume()

    # --- the end ----------------------------------------------------------------------------------------

    async def _heal(self):
        """Ends all faults: stopped processes continue, and dead ones are started again."""
        self.busy = self.faults.on = False
        if self._chaos:
            await asyncio.wait(self._chaos)
            for task in self._chaos:
                task.result()
        self.cache.down = self.database.down = False
        self.cache.resume()
        self.seen.note("healed")

    async def _until_idle(self):
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self._is_idle():
            if loop.time() > began + IDLE_WITHIN or self.seen.died:
                return False
            if loop.time() > began + SPENDS_FOR:
                for each in self.updaters:
                    each.ask_least(NOTHING_PAYS)
            await asyncio.sleep(LOOK_EVERY)
        return True

    def _is_idle(self):
        broker = self.broker
        return (
            all(each.client.idle for each in self.applications if not each.process.dead)
            and broker.idle
            and (self.fed is None or self.fed.idle)
            and all(each.idle for each in self.updaters)
        )

    async def _watch(self):
        """Checks M1 again and again, and starts dead applications again."""
        while True:
            self.seen.over_caps += invariants.over_caps(self)
            for number, each in enumerate(self.applications):
                if each.process.dead and self.busy:
                    self.applications[number] = self._application()
            await asyncio.sleep(LOOK_EVERY)


def simulate(plan, planted=None, trace=None):
    """Runs one schedule and judges it."""
    planted = planted or PlantedFault()
    logging.disable(logging.CRITICAL)  # a schedule fails thousands of times on purpose
    loop = VirtualLoop()
    loop.set_task_factory(task_factory)
    try:
        with _hurried(plan), asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(_judged(planted.plan(plan), planted, trace))
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _hurried(plan):
    """Scales the times of all parts for the schedule."""
    with adapter.hurried(plan), cache.hurried(plan), fleet.hurried(), disk.hurried(), feeds.hurried(plan):
        yield


async def _judged(plan, planted, trace):
    world = World(plan, planted, trace)
    idle = await world.run()
    violations = invariants.check(world, idle=idle)
    return Outcome(plan.seed, violations, dict(world.faults.fired), world.seen.clock(), world.seen)
