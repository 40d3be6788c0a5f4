"""P6: the cost of refreshing a key, for a usual loop, our bare loop, and the whole updater.

All three load rows from the same PostgreSQL by lists of 200 ids, 4 lists in flight, and write JSON with a ttl to the same
Redis. The *usual* loop does it with SQLAlchemy's expanding IN, `json` and a redis-py pipeline. The *bare* loop uses the parts
of the updater: loader, encoder, fenced write. The *whole* updater gets packs of 500 hints on its memory queue, and has the
partition, the engine and all its bookkeeping in between. d is the number of reads of a key per refresh: its first read is
followed by d - 1 others among the reads of the next 5,000 keys, so that a pack holds as many fresh keys as in a steady flow.
The others are merged or held; no key is loaded twice (checked).

Each runs on an event loop of its own, in slices of 10,000 keys by turns; a loop stands still while another has its turn. The
cost is the CPU time of this process; the servers have the other core. The figure is the median of the ratios per round. All
100,000 keys have come several times before a round counts: a hold is over, and its keys forgotten, long before they come
again.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from itertools import islice, repeat

import redis.asyncio
import rig
import uvloop
from sqlalchemy import column, select
from sqlalchemy import table as sql_table
from sqlalchemy.ext.asyncio import create_async_engine
from table import row

from cacheupdater import __version__
from cacheupdater.adapters.loader_sql import SqlLoader, SqlSource
from cacheupdater.adapters.observer_prometheus import PrometheusObserver
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.adapters.writer_redis import RedisWriter
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.policy import Fixed
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.partition import Partition
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.pipeline.surroundings import Surroundings
from cacheupdater.ports import Gained
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.encoding import encoder
from cacheupdater_client.protocol.patterns import Pattern

SLICE = 5_000
BATCH = 200
FLIGHT = 4
PACK = 500
BIG_PACK = 1000  # the client's maximum, and a whole number of units: reported beside
SPREAD = 5_000
TTL_S = 300
HOLD_S = 0.5  # a slice takes a tenth of a second, a pass some seconds
WARM_ROUNDS = 24  # a whole pass: every key has a value, every expiry has begun
ROUNDS = 80
BUDGET_S = 75.0
UNBOUNDED = 10**9


class InTurns:
    """Cuts ids into batches and refreshes a few batches at a time."""

    async def slice(self, ids):
        batches = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]
        batches.reverse()

        async def work():
            while batches:
                await self.refresh(batches.pop())

        await asyncio.gather(*(work() for _ in range(FLIGHT)))

    async def refresh(self, ids):
        raise NotImplementedError


class Usual(InTurns):
    """The loop that one would write in an afternoon, with batches."""

    def __init__(self, postgres, cache):
        self.engine = create_async_engine(postgres, pool_size=FLIGHT)
        self.redis = redis.asyncio.Redis.from_url(cache)
        self.items = sql_table("items", *map(column, ("id", "name", "price", "note")))

    async def refresh(self, ids):
        async with self.engine.connect() as connection:
            rows = await connection.execute(select(self.items).where(self.items.c.id.in_(ids)))
            found = {each.id: dict(each._mapping) for each in rows}
        pipe = self.redis.pipeline(transaction=False)
        for each in ids:
            pipe.set(f"item:{each}", json.dumps(found[each]), ex=TTL_S)
        await pipe.execute()

    async def close(self):
        await self.engine.dispose()
        await self.redis.aclose()


class Bare(InTurns):
    """The parts of the updater, without the updater around them."""

    def __init__(self, postgres, cache):
        self.source = SqlSource(postgres, pool_size=FLIGHT)
        self.loader = SqlLoader(self.source, rig.SQL, Pattern.compile(rig.PATTERN))
        self.writer = RedisWriter(cache)
        self.encode = encoder("json")

    async def refresh(self, ids):
        captures, keys = [(each,) for each in ids], [b"item:%d" % each for each in ids]
        token = await self.writer.token()
        values = await self.loader.load(captures)
        encoded = map(self.encode, map(values.__getitem__, captures))
        await self.writer.write(token, list(zip(keys, encoded, repeat(TTL_S * 1000))))

    async def close(self):
        await self.writer.close()
        await self.source.close()


class Whole:
    """One partition of the updater on a memory queue, as the service builds it, but with an unlimited budget."""

    def __init__(self, postgres, cache, reads, pack=PACK):
        self.reads, self.pack, self.rng = reads, pack, random.Random(6)
        self.source, self.writer, self.queue = (
            SqlSource(postgres, pool_size=FLIGHT),
            RedisWriter(cache),
            MemoryQueue(1),
        )
        pattern = Pattern.compile(rig.PATTERN)
        budget = Source("main", Bucket(UNBOUNDED, UNBOUNDED, now=0.0), concurrency=FLIGHT)
        namespace = Namespace("item", pattern, budget, every=HOLD_S, max_backlog=UNBOUNDED)
        loader = SqlLoader(self.source, rig.SQL, pattern)
        self.observer = PrometheusObserver(version=__version__, namespaces=["item"], partitions=1)
        recipes = {namespace: Recipe(loader, self.writer, encoder("json"), ttl=TTL_S, form="json")}
        self.engine = Engine(
            Keyspace([(pattern, namespace)]), Fixed(), limits=Limits(), random=random.random, offset=0
        )
        self.partition = Partition(
            Gained(0, 0, 0),
            self.engine,
            around=Surroundings(
                self.queue, recipes, self.writer, self.observer, random.random, Notices(time.monotonic)
            ),
            wake_all=self.woken,
        )
        self.packs_put, self.drained, self.running = 0, asyncio.Event(), None

    def woken(self):
        self.partition.wake_up()
        if not self.engine.pending and self.engine.cursor.scan == self.packs_put:
            self.drained.set()

    def packs(self, ids):
        """The hints of a slice: a first read of each key, in order, and its other reads soon after."""
        reads = [(at, each) for at, each in enumerate(ids)]
        for at, each in enumerate(ids):
            reads += [(at + self.rng.random() * SPREAD, each) for _ in range(self.reads - 1)]
        reads.sort()
        keys = iter([b"item:%d" % each for _, each in reads])
        while part := list(islice(keys, self.pack)):
            once = dict.fromkeys(part, 0)  # as the client does: a key once, with its count
            for key in part:
                once[key] += 1
            counts = list(once.values()) if len(once) < len(part) else ()
            yield wire.encode_pack(wire.TOUCH, 1, list(once), counts)

    async def slice(self, packs):
        if self.running is None:
            self.running = asyncio.get_running_loop().create_task(self.partition.execute())
        self.drained.clear()
        self.packs_put += len(packs)
        for each in packs:
            await self.queue.put(0, each)
        await self.drained.wait()

    async def close(self):
        await self.partition.hand_over(1.0)
        await self.queue.close()
        await self.writer.close()
        await self.source.close()


class Turns:
    """The contestants, each on a loop that runs only during its turn."""

    def __init__(self, contestants):
        self.contestants = contestants
        self.loops = {each: uvloop.new_event_loop() for each in contestants}
        self.cpu = {each: [] for each in contestants}
        self.wall = {each: [] for each in contestants}
        self.number = 0

    def round(self):
        order = list(self.contestants)
        shift = self.number % len(order)
        at = self.number * SLICE % rig.ROWS
        self.number += 1
        ids = list(range(at + 1, at + SLICE + 1))
        for each in order[shift:] + order[:shift]:
            work = list(each.packs(ids)) if isinstance(each, Whole) else ids
            began, cpu = time.perf_counter(), time.process_time()
            self.loops[each].run_until_complete(each.slice(work))
            self.cpu[each].append(time.process_time() - cpu)
            self.wall[each].append(time.perf_counter() - began)

    def ratio(self, one, other):
        """The CPU time of `one` divided by that of `other`, as the median of the rounds that count."""
        pairs = zip(self.cpu[one][WARM_ROUNDS:], self.cpu[other][WARM_ROUNDS:], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def rate(self, one):
        """Keys per second of CPU and of wall clock, in thousands."""
        return tuple(
            SLICE / statistics.median(each[one][WARM_ROUNDS:]) / 1000 for each in (self.cpu, self.wall)
        )

    def close(self):
        for each, loop in self.loops.items():
            loop.run_until_complete(each.close())
            loop.close()


def measure(postgres, cache):
    wholes = [Whole(postgres, cache, 1), Whole(postgres, cache, 10), Whole(postgres, cache, 1, BIG_PACK)]
    turns = Turns([Usual(postgres, cache), Bare(postgres, cache), *wholes])
    deadline = time.perf_counter() + BUDGET_S
    while turns.number < WARM_ROUNDS + ROUNDS and time.perf_counter() < deadline:
        turns.round()
    turns.close()
    for each in wholes:
        rows = each.observer.registry.get_sample_value("cacheupdater_rows_total", {"namespace": "item"})
        assert rows == turns.number * SLICE, (
            f"{rows} rows for {turns.number * SLICE} keys: a hold was too short"
        )
    return turns


def run():
    """The rows for `build/bench.json`."""
    with rig.servers() as (postgres, cache):
        turns = measure(postgres, cache)
    usual, bare, *wholes = turns.contestants
    rounds = turns.number - WARM_ROUNDS

    def said(one):
        return "{:.0f} k keys/s by CPU, {:.0f} k by wall".format(*turns.rate(one))

    how = f"median of {rounds} interleaved rounds of {SLICE} keys, batches of {BATCH}, {FLIGHT} in flight, uvloop"
    rows = [
        row(
            "P6-naive",
            turns.ratio(usual, bare),
            3.0,
            better="higher",
            method=f"CPU of expanding IN + json + redis-py pipeline ({said(usual)}) / bare refresh loop ({said(bare)}); {how}",
        )
    ]
    for whole, goal in zip(wholes, (0.85, 0.65, None), strict=True):
        rows.append(
            row(
                f"P6-d{whole.reads}" if goal else f"P6-d{whole.reads}-packs-of-{whole.pack}",
                turns.ratio(bare, whole),
                goal,
                better="higher",
                method=f"CPU of the bare loop ({said(bare)}) / whole updater ({said(whole)}), "
                f"{whole.reads} reads a refresh in packs of {whole.pack}; {how}",
            )
        )
    return rows


if __name__ == "__main__":
    for each in run():
        print(each)
