"""P4: hints a second through the updater's Kafka path with all rules on, against a bare `getmany` of one key per record.

Our side is the real path: KafkaQueue with its poller, inboxes and commits, `fetch`, decoding, and an engine per partition. All
of the automaton's rules keep the engine busy: hold 100 ms, heads of 20 ms, 2 % of the packs changes and misses. The other side
is aiokafka's consumer, which reads records of one key each and does nothing with them. Both read the same hints, in the same
order, from topics with the same number of partitions: as packs of 500 hints, in which a key stands once with its count, and
one by one.

A pass reads a topic from its first record to its last. The parties take turns, in rotated order. The cost is this process's
CPU time from the assignment to the last key, so records that were read ahead are included. Engines live on from pass to pass,
so that as many seats end as begin; the first pass does not count. Their clock is virtual, and a million hints arrive in one
of its seconds, so the figure does not depend on how busy the machine is.

As in P5, the captures of a key cost nothing in the row with the goal; another row has the same with captures parsed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import statistics
import time
import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import rig
import uvloop
from aiokafka import AIOKafkaConsumer
from dedup import HEAD_S, UNBOUNDED, Pinned, Run, Silent
from scaling_topics import KEPT, RATE, Load, fill
from table import row

from cacheupdater.adapters.queue_kafka import KafkaQueue
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.policy import Fixed
from cacheupdater.kafka_group.settings import SESSION
from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater.pipeline.intake import take_in
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.partition import COMMIT_EVERY
from cacheupdater.ports import Message
from cacheupdater_client.protocol import broker
from cacheupdater_client.protocol.patterns import Pattern

COLLECTOR = gc.get_threshold()  # Python's own
GOALS = {"zipf": 4.0, "uniform": 2.8}
HOLD_S = 0.1
ROUNDS = 7
JOIN_S = 60.0  # for a group to form, on a slow machine too
BUDGET_S = 100.0  # of rounds, for each kind of traffic


# --- the parties --------------------------------------------------------------------------------------------


def engine(*, pinned):
    """An engine as in P5: one partition without limits."""
    pattern = Pattern.compile("product:{id:int}")
    source = Source("main", Bucket(UNBOUNDED, UNBOUNDED, now=0.0), concurrency=UNBOUNDED)
    seen = Pinned(pattern) if pinned else pattern
    namespace = Namespace("product", seen, source, every=HOLD_S, max_backlog=UNBOUNDED)
    limits = Limits(pending=UNBOUNDED)
    return Engine(Keyspace([(pattern, namespace)]), Fixed(), limits=limits, random=random.random, offset=0)


class Share(Run):
    """One partition's engine, with stand-ins for its loads and writes."""

    def __init__(self, number, load, *, pinned):
        super().__init__(HOLD_S, random.Random(number))
        self.engine = engine(pinned=pinned)
        self.load = load
        self.now = 1.0
        self.begins = 0  # the engine's offset at which this pass begins

    def take(self, messages):
        """Takes the packs of a fetch. If a topic is read again, its offsets continue where the engine ended."""
        self.now += len(messages) * self.load.pack * self.load.partitions / RATE
        moved = [Message(self.begins + each.offset, each.payload) for each in messages]
        take_in(self.engine, moved, self.now, observer=SILENT)
        self.heads.extend((self.now + HEAD_S, unit) for unit in self.engine.step(self.now).units)
        while self.heads and self.heads[0][0] <= self.now:
            self.end(self.heads.popleft()[1], self.now)
        self.engine.take_ages()

    @property
    def done(self):
        """The `done` offset of this pass, for the queue."""
        return self.engine.cursor.advance() - self.begins


SILENT = Silent()


async def nothing(*_, **__):
    """For a pass with no others to wait for."""


class Ours:
    """An updater: it reads what the group gives it."""

    def __init__(self, bootstrap, topic, load, *, pinned=True):
        self.address = broker.parse(f"kafka://{bootstrap}/{topic}")
        self.load, self.pinned = load, pinned
        self.shares = {}

    async def read(self, group, owned, *, between=nothing, session=SESSION):
        """One pass over so many partitions; returns the seconds of CPU.

        Calls `between` to wait for the other members of the group, once when it owns its partitions and once when it has
        read them.
        """
        queue = KafkaQueue(
            self.address, group=group, session=session, observer=SILENT, notices=Notices(lambda: 0.0)
        )
        await queue.start()
        gained, mine = asyncio.Event(), {}
        following = asyncio.ensure_future(self._follow(queue, mine, gained, owned))
        try:
            async with asyncio.timeout(JOIN_S):
                await gained.wait()
            await between("owned")
            spent = await self._through(queue, dict(mine))
            await between("read", cpu=spent)
        finally:
            await queue.close()
            await following
        return spent

    async def _follow(self, queue, mine, gained, owned):
        """Follows ownership until the group has its last member."""
        async for change in queue.assignments():
            for partition in change.lost:
                mine.pop(partition, None)
            change.settled()
            for each in change.gained:
                mine[each.partition] = each
            if len(mine) == owned:
                gained.set()

    async def _through(self, queue, mine):
        for partition in mine:
            if partition not in self.shares:
                self.shares[partition] = Share(partition, self.load, pinned=self.pinned)
        cpu = time.process_time()
        committing = asyncio.ensure_future(self._commit(queue, mine))
        async with asyncio.TaskGroup() as group:
            for partition in mine:
                group.create_task(self._partition(queue, partition, self.shares[partition]))
        cpu = time.process_time() - cpu
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        for partition in mine:
            self.shares[partition].begins += self.load.packs
        return cpu

    async def _partition(self, queue, number, share):
        step, left = self.load.step, self.load.packs
        while left:
            messages = await queue.fetch(number, step)
            share.take(messages)
            left -= len(messages)
            await asyncio.sleep(0)  # as the updater's partitions do

    async def _commit(self, queue, mine):
        while True:
            await asyncio.sleep(COMMIT_EVERY)
            await asyncio.gather(
                *(
                    queue.commit(number, epoch=gained.epoch, done=max(0, self.shares[number].done))
                    for number, gained in mine.items()
                )
            )

    async def cost(self):
        """ns of CPU per hint."""
        spent = await self.read(uuid.uuid4().hex, self.load.partitions)
        return spent / self.load.hints * 1e9

    @property
    def tracked(self):
        return sum(share.engine.tracked for share in self.shares.values())


class Bare:
    """aiokafka's consumer, whose records are dropped."""

    def __init__(self, bootstrap, topic, load, *, records, plain=True):
        """`plain`: with Python's default collector, which looks at new records thousands of times. Otherwise with ours."""
        self.bootstrap, self.topic, self.load, self.records = bootstrap, topic, load, records
        self.collector = COLLECTOR if plain else gc.get_threshold()

    @asynccontextmanager
    async def consumer(self):
        consumer = AIOKafkaConsumer(
            self.topic, bootstrap_servers=self.bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            with suppress(asyncio.CancelledError):
                await consumer.stop()

    async def cost(self):
        """ns of CPU per hint. This party's collector does not look at the objects of the others."""
        gc.collect()
        gc.freeze()
        usual = gc.get_threshold()
        gc.set_threshold(*self.collector)
        try:
            async with self.consumer() as consumer:
                cpu, read = time.process_time(), 0
                while read < self.records:
                    polled = await consumer.getmany(timeout_ms=100)
                    read += sum(map(len, polled.values()))
                return (time.process_time() - cpu) / self.load.hints * 1e9
        finally:
            gc.set_threshold(*usual)
            gc.unfreeze()


# --- measuring ----------------------------------------------------------------------------------------------


def quiet():
    """Sets the collector as the updater does, and silences aiokafka's log lines about new topics."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    rig.collect_as_the_updater()


def take_turns(runner, parties, rounds, budget):
    """The ns per hint of each party in each round, by name. The order rotates. The first round warms up."""
    costs = {name: [] for name in parties}
    names = list(parties)
    deadline = time.perf_counter() + budget
    for number in range(rounds + 1):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            costs[name].append(runner.run(parties[name].cost()))
        if number and time.perf_counter() > deadline:
            break
    return {name: each[1:] for name, each in costs.items()}


def measure(server, load, rounds=ROUNDS, budget=BUDGET_S):
    """(costs by party, text for the rows)."""
    quiet()
    packed, single = f"packed-{load.kind}", f"single-{load.kind}"
    for topic in (packed, single):
        kafka_topics.done(kafka_topics.create(server.admin, topic, partitions=load.partitions, config=KEPT))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        keys, stored = runner.run(fill(server.bootstrap, load, packed, single))
        quiet()
        ours = Ours(server.bootstrap, packed, load)
        parties = {
            "ours": ours,
            "bare": Bare(server.bootstrap, single, load, records=load.hints),
            "tuned": Bare(server.bootstrap, single, load, records=load.hints, plain=False),
            "captures": Ours(server.bootstrap, packed, load, pinned=False),
            "packs": Bare(server.bootstrap, packed, load, records=load.packs * load.partitions),
        }
        costs = take_turns(runner, parties, rounds, budget)
    return costs, {"keys": keys, "stored": stored, "tracked": ours.tracked}


def rows_of(load, costs, found):
    bare, tuned, ours, captures, packs = (
        statistics.median(costs[name]) for name in ("bare", "tuned", "ours", "captures", "packs")
    )
    ratio = {
        name: statistics.median(a / b for a, b in zip(costs["bare"], costs[name], strict=True))
        for name in ("ours", "captures")
    }
    how = (
        f"{load.universe:,} keys of 22 B, {load.partitions} partitions, zstd, Apache Kafka; median of "
        f"{len(costs['ours'])} interleaved passes over {load.hints:,} hints, process_time"
    )
    share = found["keys"] / load.hints
    method = (
        f"CPU of raw getmany of one key per record ({bare:.0f} ns a key; {tuned:.0f} with the collector set as the updater's) / KafkaQueue, packs of {load.pack} hints, decode and "
        f"automaton ({ours:.0f} ns a hint; {packs:.0f} ns are getmany of the packs), a key once in a pack ({share:.2f} keys a "
        f"hint; {ratio['ours'] * share:.2g} where the other has no duplicates either), hold {HOLD_S:g} s, {found['tracked']:,} "
        f"keys tracked; {how}"
    )
    beside = f"the same with every unit's captures parsed ({captures:.0f} ns a hint); see P5-resolution for many namespaces"
    name = f"P4-{load.kind}"
    return [
        row(name, ratio["ours"], GOALS[load.kind], better="higher", method=method),
        row(f"{name}-captures", ratio["captures"], None, better="higher", method=beside),
    ]


def run(load=None, rounds=ROUNDS):
    """The rows for `build/bench.json`."""
    load = load or Load()
    rows = []
    rig.pin(0)
    with KafkaServer() as server:
        rig.pin(-1)
        for kind in GOALS:
            drawn = replace(load, kind=kind)
            rows += rows_of(drawn, *measure(server, drawn, rounds))
    return rows


if __name__ == "__main__":
    for each in run():
        print(each)
