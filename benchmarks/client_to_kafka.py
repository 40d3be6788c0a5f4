"""P2: the cost of a hint for the reader's process if it goes straight to Kafka, against `await producer.send` per read.

Our side is the whole way: the buffer's touch, the sender's drain, the outbox, packs, zstd, aiokafka, and the broker's
acknowledgement, at 100,000 hints per second. Reads of a cache are skewed, so the keys of the row are too (Zipf, s = 1). The
ratio for uniformly drawn keys, of which hardly one comes twice in a drain, is printed beside it. The other side is what an
application would write itself: one record per read with the same library, acks and compression, as fast as it goes. Both send
the same keys to topics of the same broker, by turns. The cost is this process's CPU time, less that of a loop that only steps
through the keys at the same pace. The figure is the median of the ratios of all pairs of rounds.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from itertools import accumulate

import redis
from aiokafka import AIOKafkaProducer
from table import row

from cacheupdater.local import kafka_topics
from cacheupdater.local.kafka_server import KafkaServer
from cacheupdater_client.sender import Sender

GOAL = 20.0
PARTITIONS = 12
KEYS = 200_000
RATE = 100_000  # hints per second
CHUNK_S = 0.01  # a burst of hints, then a rest
HINTS = 200_000  # of ours in a round
SENDS = 50_000  # of theirs
ROUNDS = 5
ATTEMPTS = 12  # on a busy machine the broker may stand still for a second, and a round is void
WAIT_S = 30.0


WEIGHTS = {"zipf": list(accumulate(1 / rank for rank in range(1, KEYS + 1))), "uniform": range(1, KEYS + 1)}


def keys_of(how, seed):
    drawn = random.Random(seed).choices(range(KEYS), cum_weights=WEIGHTS[how], k=HINTS)
    return [f"product:{number * 7919 % KEYS:014d}" for number in drawn]


def paced(keys, step):
    """Calls `step` with each key, at the rate; this process's CPU time when it began."""
    size = int(RATE * CHUNK_S)
    began, due = time.process_time(), time.perf_counter()
    for start in range(0, len(keys), size):
        for key in keys[start : start + size]:
            step(key)
        due += CHUNK_S
        time.sleep(max(0.0, due - time.perf_counter()))
    return began


def ours(sender, buffer, keys):
    """CPU seconds, delivery included; None if a busy broker kept us waiting until hints were dropped."""
    dropped = sender.stats()["dropped"].get("full", 0)
    began = paced(keys, buffer.touch)
    deadline = time.monotonic() + WAIT_S
    while sender.stats()["waiting"] and time.monotonic() < deadline:
        time.sleep(0.01)
    spent = time.process_time() - began
    stats = sender.stats()
    if stats["waiting"]:
        raise RuntimeError(f"not delivered: {stats}")
    return None if stats["dropped"].get("full", 0) > dropped else spent


def nothing(_):
    """The step of the bare loop, whose own cost is subtracted."""


async def theirs(bootstrap, keys):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, compression_type="zstd")
    await producer.start()
    try:
        await producer.send_and_wait("theirs", key=b"first")
        began = time.process_time()
        for key in keys:
            await producer.send("theirs", key=key.encode())
        await producer.flush()
        return time.process_time() - began
    finally:
        await producer.stop()


def measure(server, how):
    """(ns of ours, ns of theirs) for each round."""
    sender = Sender()
    buffer = sender.target(f"kafka://{server.bootstrap}/ours", ()).buffer(redis.Redis().get_encoder())
    ours(sender, buffer, keys_of(how, 0)[: RATE // 2])  # aiokafka is imported, the topic greeted
    rounds = []
    for number in range(1, ATTEMPTS + 1):
        keys = keys_of(how, number)
        began = paced(keys, nothing)
        bare = time.process_time() - began
        spent = ours(sender, buffer, keys)
        if spent is not None:
            theirs_spent = asyncio.run(theirs(server.bootstrap, keys[:SENDS]))
            rounds.append((1e9 * (spent - bare) / HINTS, 1e9 * theirs_spent / SENDS))
        if len(rounds) == ROUNDS:
            break
    sender.close(5)
    return rounds


def run():
    """The rows for `build/bench.json`."""
    with KafkaServer() as server:
        for topic in ("ours", "theirs"):
            kafka_topics.done(kafka_topics.create(server.admin, topic, partitions=PARTITIONS))
        rounds = {how: measure(server, how) for how in WEIGHTS}
    ratios = {how: statistics.median(b / a for a, b in each) for how, each in rounds.items()}
    mine, other = map(statistics.median, zip(*rounds["zipf"], strict=True))
    method = (
        f"`await producer.send(topic, key=key)` per read ({other:.0f} ns of client CPU) / a hint with delivery "
        f"({mine:.0f} ns) at {RATE:,} hints/s; {KEYS:,} keys of 22 B, Zipf (uniform: {ratios['uniform']:.1f}x); "
        f"{PARTITIONS} partitions, acks=1, zstd, Apache Kafka; median of {len(rounds['zipf'])} rounds, process_time "
        f"less the bare loop's"
    )
    return [row("P2", ratios["zipf"], GOAL, better="higher", method=method)]


if __name__ == "__main__":
    for each in run():
        print(each)
