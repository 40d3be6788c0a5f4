"""One updater process of `scaling.py`. It reads commands as lines of JSON and answers in the same way.

    {"do": "consume", ...}  reads a share of a topic, once: seconds of CPU. Says "owned" when the group has distributed
                            the partitions, and begins at a command
    {"do": "idle", ...}     owns partitions without any traffic
    {"do": "track", ...}    an engine without Kafka and so many tracked keys; then {"do": "play"} for a slice of its hints

A worker lives for the whole benchmark. A tracked engine has its worker to itself, for its memory is measured.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time

import numpy as np
import psutil
import uvloop
from dedup import PACK, STEP_PACKS, STEP_S, UNBOUNDED, Run
from kafka_intake import JOIN_S, SILENT, Ours, quiet
from scaling_topics import Load

from cacheupdater.adapters.queue_kafka import KafkaQueue
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.policy import Fixed
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.partition import Partition
from cacheupdater.pipeline.supervisor import Supervisor
from cacheupdater.pipeline.surroundings import Surroundings
from cacheupdater.price import Market, Price
from cacheupdater_client.protocol import broker, wire
from cacheupdater_client.protocol.patterns import Pattern

SESSION_S = 10.0  # a member that joins is noticed at the next heartbeat, a fifteenth of it
STEP_HINTS = PACK * STEP_PACKS
RATE = STEP_HINTS / STEP_S  # hints per virtual second: a million
BUDGET = 1_000.0  # rows a second, of the policy price
LEARNED = 1_000_000  # keys that it learns about, as shipped


def say(**said):
    print(json.dumps(said), flush=True)


def resident():
    return psutil.Process().memory_info().rss


# --- Kafka --------------------------------------------------------------------------------------------------


def consume(bootstrap, topic, load, *, group, owned):
    """Reads with fresh engines each time, so that a worker of a group has no warmer ones than a worker alone."""
    load = Load(**load)

    gc.collect()
    run(Ours(bootstrap, topic, load).read(group, owned, between=between, session=SESSION_S))
    say(rss=resident())


async def between(what, **said):
    """Waits for the other members: all read at the same time, and none leaves before all have read."""
    say(what=what, **said)
    if what == "owned":
        sys.stdin.readline()  # the loop stands still: nothing is read ahead
    else:
        await asyncio.to_thread(sys.stdin.readline)


def run(work):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def idle(bootstrap, topic, partitions, seconds):
    """Runs the updater's own tasks, from the supervisor to the engines, without any work."""
    say(cpu_per_s=run(_idle(f"kafka://{bootstrap}/{topic}", partitions, seconds)), rss=resident())


async def _idle(url, partitions, seconds):
    queue = KafkaQueue(broker.parse(url), group="idle", observer=SILENT, notices=Notices(lambda: 0.0))
    around = Surroundings(queue, {}, None, SILENT, random.random, Notices(time.monotonic))

    def make(gained, wake_all):
        engine = Engine(Keyspace([]), Fixed(), limits=Limits(), random=random.random, offset=gained.offset)
        return Partition(gained, engine, around=around, wake_all=wake_all)

    await queue.start()
    supervisor = Supervisor(queue, make)
    running = asyncio.ensure_future(supervisor.run())
    async with asyncio.timeout(JOIN_S):
        while len(supervisor.partitions) < partitions:  # noqa: ASYNC110  the supervisor does not notify
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)  # the joining is over
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    spent = (time.process_time() - cpu) / (time.perf_counter() - began)
    await supervisor.drain(1.0)
    await queue.close()
    await running
    return spent


# --- engines alone ------------------------------------------------------------------------------------------


class Tracked(Run):
    """Hints drawn evenly over so many keys. A hold lasts until each key has been drawn once on average."""

    def __init__(self, universe, *, learned):
        self.universe, self.now = universe, 1.0
        super().__init__(universe / RATE, random.Random(5))
        if learned:
            self.engine = priced(learned)
        self.draw = np.random.default_rng(5)
        self.longest = 0.0

    def play(self, steps):
        """The seconds of CPU of so many steps of 10 virtual milliseconds."""
        total = 0.0
        for _ in range(steps):
            self.now += STEP_S
            packs = [self.pack() for _ in range(STEP_PACKS)]
            began = time.process_time()
            self.step(packs, self.now)
            spent = time.process_time() - began
            total += spent
            self.longest = max(self.longest, spent)
        return total

    def pack(self):
        lot = self.rng.random()
        kind = wire.TOUCH if lot < 0.98 else wire.MISS if lot < 0.99 else wire.CHANGE
        numbers = self.draw.integers(self.universe, size=PACK).tolist()
        return wire.encode_pack(
            kind, 1, list(dict.fromkeys([b"product:%014d" % number for number in numbers]))
        )


def priced(learned):
    """An engine under the policy price, with a budget."""
    pattern = Pattern.compile("product:{id:int}")
    source = Source("main", Bucket(BUDGET, BUDGET, now=1.0), concurrency=UNBOUNDED)
    space = Namespace("product", pattern, source, terms=Terms())
    keyspace = Keyspace([(pattern, space)])
    market = Market(source, [space], random=random.Random(6).random, now=1.0)
    limits = Limits(learned=learned)
    policy = Price(keyspace, [space], {source: market}, limits=limits, now=1.0)
    return Engine(keyspace, policy, limits=limits, random=random.random, offset=0)


it: list[Tracked] = []


def track(universe, warm, learned=0):
    """Fills an engine. Its tracked keys stay visible to the collector, as in the updater."""
    before = resident()
    it.append(Tracked(universe, learned=learned))
    it[0].play(warm)
    it[0].longest = 0.0
    gc.collect()
    say(grown=resident() - before, **known(it[0].engine))


def known(engine):
    table = getattr(engine._policy, "table", ())
    return {"tracked": engine.tracked, "learned": len(table)}


def play(steps):
    spent = it[0].play(steps)
    say(ns=spent / (steps * STEP_HINTS) * 1e9, longest_ms=it[0].longest * 1e3, **known(it[0].engine))


DEEDS = {"consume": consume, "idle": idle, "track": track, "play": play}


def main():
    quiet()
    say(rss=resident())
    for line in sys.stdin:
        said = json.loads(line)
        DEEDS[said.pop("do")](**said)


if __name__ == "__main__":
    main()
