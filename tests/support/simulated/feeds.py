"""The database's log, and the updaters' way to it: the real readers, lookups and sinks over a feed, a link and a statement of ours.

The log is `cacheupdater/testing/memory_feed.py`; its contract compares it with the real feeds. It tells of every commit, also of those that
an application announces. A namespace's own table names its keys; a row of `brands` concerns all keys of b that are of this brand.
The world makes one `Feeds`, and each updater the `works` of its readers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NamedTuple

from cacheupdater.collector import gathered
from cacheupdater.core import watermark
from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.feeds import lookups, reader, sinks, sweep
from cacheupdater.feeds.lookups import GivenUp, Lookups
from cacheupdater.feeds.reader import Reader
from cacheupdater.feeds.row_keys import Direct, Lookup, RowKeys
from cacheupdater.feeds.sinks import MemorySink, SharedSink
from cacheupdater.pipeline.notices import Notices
from cacheupdater.service.feeding import Purse
from cacheupdater.testing import memory_feed, memory_redis
from cacheupdater.testing.memory_feed import MemoryFeed, MemoryLog
from cacheupdater_client.protocol import fence, wire
from simulated.generation import PATTERNS, Observer
from simulated.polled import PolledLog
from simulated.polled import batches as polled_batches
from simulated.topic import TICK

TABLES = ("a", "b", "brands")
BRANDS = 2
SESSION_S = 0.4  # after which a dead or frozen reader has lost its turn
SLOW_S = (0.02, 0.5)
RECONNECT_S = 0.05
LOAD_AGE_S = 4  # seconds: a sixth or so of the real ones


@contextmanager
def hurried(plan):
    """Sets the times and limits of feeds in the scale of these schedules, and the age beyond which no load is written."""
    fed = plan.fed
    if fed is None:
        yield
        return
    changes = (
        (fence, "LOAD_AGE_S", LOAD_AGE_S),
        (memory_redis, "LOAD_AGE_S", LOAD_AGE_S),
        (sweep, "AGAIN_S", LOAD_AGE_S + 1.0),
        (reader, "REST_S", 0.1),
        (watermark, "TICK_S", 0.05),
        (reader, "CONFIRM_EVERY_S", 0.05),
        (reader, "BATCHES_MAX", fed.unconfirmed),
        (lookups, "AGAIN_S", 0.1),
        (memory_feed, "TURN_S", 0.1),
        (sinks, "PACK_KEYS", fed.pack_keys),
        (sinks, "made_link", lambda link: link),
        (sinks, "shown", str),
        (sinks, "time", SimpleNamespace(time_ns=lambda: 0)),
        (gathered, "URGENT_MAX", fed.room),
    )
    real = [getattr(module, name) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(changes, real, strict=True):
            setattr(module, name, value)


def brand_of(key):
    """The brand of a row of b."""
    return int(key[2:]) % BRANDS


class Told(NamedTuple):
    """One commit in a log."""

    at: float
    position: int
    keys: tuple = ()  # of which the log tells the rows
    found: tuple = ()  # which a statement must find


class Confirmed(NamedTuple):
    """A reader has confirmed a log up to this position."""

    at: float
    position: int
    process: str


class Feeds:
    """All logs of a world."""

    def __init__(self, world):
        self._world = world
        split = world.plan.fed.split
        whole = PolledLog(TABLES) if world.plan.fed.overlap is not None else MemoryLog()
        self.log_of = {table: MemoryLog() if split else whole for table in TABLES}
        self.logs = list(dict.fromkeys(self.log_of.values()))
        self.told = [[] for _ in self.logs]
        self.confirmed = [[] for _ in self.logs]
        self.gave_up = False  # whether a statement was given up
        self.began = world.seen.clock()

    # --- what programs commit ---------------------------------------------------------------------------

    def tell_rows(self, keys, began=None):
        """One transaction has changed these rows, each to another version."""
        self._tell([(_table(key), ({"id": int(key[2:])},), (key,), ()) for key in keys], began)

    def tell_moved(self, key, other):
        """A row has another key from now on."""
        rows = {"id": int(key[2:])}, {"id": int(other[2:])}
        self._tell([(_table(key), rows, (key, other), ())])

    def tell_brand(self, brand, keys, began):
        """A row of another table has changed, which concerns these keys."""
        self._tell([("brands", ({"id": brand},), (), tuple(keys))], began)

    def tell_truncated(self, table):
        """No row is left of a table."""
        log = self.log_of[table]
        with log.transaction(self._world.wall()) as transaction:
            transaction.truncate(_full(table))
        self._note(log, Told(self._world.seen.clock(), log.end))

    def _tell(self, changes, began=None):
        if isinstance(self.logs[0], PolledLog):
            for table, [row], _, _ in changes:
                self.logs[0].change(table, row["id"], self._world.seen.clock() if began is None else began)
            return
        parts = defaultdict(list)
        for change in changes:
            parts[self.log_of[change[0]]].append(change)
        for log, some in parts.items():
            with log.transaction(self._world.wall()) as transaction:
                for table, rows, _, _ in some:
                    transaction.change(_full(table), *rows)
            keys = tuple(key for _, _, keys, _ in some for key in keys)
            found = tuple(key for _, _, _, found in some for key in found)
            self._note(log, Told(self._world.seen.clock(), log.end, keys, found))

    def _note(self, log, told):
        self.told[self.logs.index(log)].append(told)
        self._world.seen.note("log", self.logs.index(log), told.position, "tells of", *told.keys, *told.found)

    # --- what goes wrong --------------------------------------------------------------------------------

    def lose(self, log):
        """Nobody hears of what was not confirmed, but of the loss."""
        log.lose("the slot was dropped")
        number, now = self.logs.index(log), self._world.seen.clock()
        lost = Confirmed(now, log.end - 1, "")  # by nobody
        self.confirmed[number].append(lost)
        self.told[number].append(Told(now, log.end))

    def reading(self):
        """The updaters that have a turn."""
        processes = [log.turn.process for log in self.logs if log.turn is not None]
        return [each for each in self._world.updaters if each.process in processes]

    @property
    def idle(self):
        return not any(log.commits for log in self.logs) and getattr(self.logs[0], "idle", True)

    # --- what an updater runs ---------------------------------------------------------------------------

    def works(self, updater):
        """The readers of one process, and what runs beside them."""
        world = self._world
        if world.plan.fed.memory:
            sink, works = SimMemorySink(updater.consumer.queue, world), []
        else:
            sink = SimSharedSink(updater.process, world)
            works = [sink.run()]
        world.planted.sink(sink)
        names = {each.name: each for each in updater.around.recipes}
        for number, log in enumerate(self.logs):
            made = self._reader(updater, number, log, sink=sink, names=names)
            world.planted.reader(made)
            works.append(made.run(Observer(), Notices(world.seen.clock), world.wall))
        return works

    def _reader(self, updater, number, log, *, sink, names):
        world = self._world
        tables = [table for table, other in self.log_of.items() if other is log]
        return Reader(
            f"log{number}",
            SimFeed(log, list(map(_full, tables)), updater.process, world=world, number=number),
            RowKeys([rule for rule in _rules() if rule.table in tables]),
            sink=sink,
            lookups=SimLookups(
                {0: SimFinder(updater.process, world)}, lambda name: Purse(names[name]), world
            ),
            redis=SimScanning(updater.around.writer, world),
        )


def _table(key):
    return key[:1].decode()


def _full(table):
    """As a database with schemas tells it."""
    return f"public.{table}"


def _rules():
    a, b = PATTERNS[b"a:"], PATTERNS[b"b:"]
    return (
        Direct("a", "a:", a, ("id",)),
        Direct("b", "b:", b, ("id",)),
        Lookup("brands", "b:", b, "id", 0),
    )


class SimFeed(MemoryFeed):
    """One process's connection to a log, as slow and as unreliable as the schedule wants."""

    def __init__(self, log, tables, process, *, world, number):
        super().__init__(log, tables, events_max=world.plan.fed.events_max)
        self.process = process
        self._world = world
        self._number = number

    async def start(self):
        self.process.check()
        await asyncio.sleep(self._world.latency())
        await super().start()
        self._world.seen.note(self.process.name, "has the turn of log", self._number)

    async def batches(self):
        world = self._world
        polled = isinstance(self._log, PolledLog)
        async for batch in polled_batches(self, self._log, world) if polled else super().batches():
            await self._travel()
            if world.faults("feed_cut"):
                self.lost()
                raise Unavailable("the connection was lost")
            self.process.check()
            yield batch
            if world.faults("feed_again"):
                yield batch

    async def confirm(self, position):
        world, seen = self._world, self._world.seen
        self.process.check()
        if world.faults("feed_confirm_error"):
            raise Unavailable("the connection was lost")
        await self._travel()
        await super().confirm(position)
        if isinstance(self._log, PolledLog):
            self._log.kept = position
            return
        world.fed.confirmed[self._number].append(Confirmed(seen.clock(), position, self.process.name))
        seen.note(self.process.name, "confirms log", self._number, "up to", position)
        if world.faults("feed_confirm_cut"):
            raise Unavailable("the connection was lost")
        self.process.check()

    async def stop(self):
        if not self.process.dead:
            await super().stop()
            return
        self._stopped = True  # the database notices late
        asyncio.get_running_loop().call_later(self._world.random.uniform(0.0, SESSION_S), self.lost)

    def refuse_if_away(self):
        """For those who poll."""
        self._refuse_if_away()

    async def _travel(self):
        world = self._world
        await asyncio.sleep(world.slow(SLOW_S) if world.faults("feed_delay") else world.latency())


class SimLookups(Lookups):
    """The real ones. They tell the world of statements that were given up."""

    def __init__(self, finders, paying, world):
        super().__init__(finders, paying)
        self._world = world

    async def find(self, lookup, values):
        try:
            async for keys in super().find(lookup, values):
                yield keys
        except GivenUp:
            self._world.fed.gave_up = True
            self._world.faults.fired["lookup_given_up"] += 1
            raise


class SimFinder:
    """The statement that finds the keys of a brand."""

    def __init__(self, process, world):
        self._process = process
        self._world = world

    async def find(self, values):
        world = self._world
        self._process.check()
        await asyncio.sleep(world.latency())
        if world.database.down:
            raise Unavailable("the database cannot be reached")
        if world.faults("lookup_error"):
            raise Faulty("the statement failed")
        found = [[n] for brand in values for n in range(world.plan.keys) if n % BRANDS == brand]
        await asyncio.sleep(world.latency())
        self._process.check()
        return found


class SimScanning:
    """The writer's own scan, counted."""

    def __init__(self, writer, world):
        self._writer = writer
        self._world = world

    async def scan(self, prefix):
        fired = self._world.faults.fired
        try:
            async for page in self._writer.scan(prefix):
                yield page
        except Unavailable:
            fired["sweep_failed"] += 1
            raise
        fired["swept"] += 1


class SimMemorySink(MemorySink):
    """The real one. It counts how often keys waited for room."""

    def __init__(self, queue, world):
        super().__init__(queue, world.plan.partitions)
        self._world = world

    async def put(self, keys):
        clock = self._world.seen.clock
        began = clock()
        safe = await super().put(keys)
        self._world.faults.fired["queue_full"] += clock() > began
        return safe


class SimSharedSink(SharedSink):
    """The real one, with its forwarder and its outbox, over a link of ours and without its thread."""

    def __init__(self, process, world):
        super().__init__(SimLink(process, world), observer=Observer(), notices=Notices(world.seen.clock))
        self._world = world

    async def run(self):
        async def aside(work):
            return work()

        await self._forwarder.run(self, aside, lambda: 0)

    async def put(self, keys):
        clock = self._world.seen.clock
        began = clock()
        safe = await super().put(keys)
        self._world.faults.fired["queue_full"] += clock() > began
        return safe


class SimLink:
    """A link to the queue: frames travel, and so do their acknowledgements. Both may be lost with the connection."""

    trouble = ""

    def __init__(self, process, world):
        self._process = process
        self._world = world
        self._connection = 0
        self._connections = 0
        self._hello = None
        self._again = self._arrives = 0.0
        self._accepted = 0

    @property
    def connected(self):
        return bool(self._connection)

    def turn(self, outbox, now, now_ms):
        """As the port says."""
        self._process.check()
        if self._hello is not None and self._hello.partitions != self._world.broker.partitions:
            self._lose(now)
        if not self._connection:
            if now < self._again:
                return False
            self._connect(outbox)
        outbox.acknowledge(self._accepted)
        while self._connection and (frame := outbox.next_frame(now_ms)) is not None:
            self._send(frame, now)
        return False

    def close(self):
        self._lose(0.0)

    def _connect(self, outbox):
        self._connections += 1
        self._connection, self._accepted, self._arrives = self._connections, 0, 0.0
        self._hello = wire.Hello(self._world.broker.partitions, list(PATTERNS))
        outbox.greet(self._hello)

    def _lose(self, now):
        self._connection, self._hello, self._again = 0, None, now + RECONNECT_S

    def _send(self, frame, now):
        world, cut = self._world, self._world.faults("sink_cut")
        delay = world.slow(SLOW_S) if world.faults("sink_delay") else world.latency()
        self._arrives = max(self._arrives + TICK, now + delay)
        if not cut or world.random.random() < 0.5:
            loop = asyncio.get_running_loop()
            loop.call_at(self._arrives, self._arrive, frame, self._connection)
        if cut:
            self._lose(now)

    def _arrive(self, frame, connection):
        """At the queue, which then acknowledges."""
        self._world.broker.accept(frame.partition, frame.pack)
        delay = self._world.latency()
        asyncio.get_running_loop().call_later(delay, self._acknowledge, connection)

    def _acknowledge(self, connection):
        if connection == self._connection:
            self._accepted += 1
