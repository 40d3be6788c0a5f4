"""Fills the topics of P4 and of `scaling`: the same hints as packs, and one by one.

Draws are seeded, so every run writes the same records. Keys go to the partition that the client would choose.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from aiokafka import AIOKafkaProducer

from cacheupdater_client.protocol import wire

RATE = 1_000_000  # hints per virtual second
STEP_S = 0.01  # of virtual time: the hints of a step are taken from the inbox at once
BATCH_BYTES = 64 * 1024  # of single records, compressed together; each pack is a batch of its own
KEPT = {"retention.ms": "-1"}


@dataclass(frozen=True)
class Load:
    """The content of a topic."""

    kind: str = "zipf"  # or "uniform"
    partitions: int = 12
    pack: int = 500  # hints in each; a key that comes again in a pack is counted, not repeated
    packs: int = 500  # in each partition
    universe: int = 1_000_000

    @property
    def hints(self):
        return self.partitions * self.packs * self.pack

    @property
    def step(self):
        """The packs that a partition takes at once: those that arrive in a step of virtual time, but at least one."""
        return max(1, round(RATE * STEP_S / self.partitions / self.pack))


def draws(load, rng):
    """An endless stream of key numbers."""
    popularity = 1.0 / np.arange(1, load.universe + 1) if load.kind == "zipf" else np.ones(load.universe)
    ends = np.cumsum(popularity)
    by_rank = rng.permutation(load.universe)
    while True:
        yield from by_rank[np.searchsorted(ends, rng.random(100_000) * ends[-1])].tolist()


def filled(load, seed=4):
    """(partition, hints) of each pack. Every partition has the same number of packs."""
    names = [b"product:%014d" % number for number in range(load.universe)]
    places = [crc32(name) % load.partitions for name in names]
    shares = [[] for _ in range(load.partitions)]
    lacking, unfinished = [load.packs] * load.partitions, load.partitions
    for number in draws(load, np.random.default_rng(seed)):
        place = places[number]
        share = shares[place]
        share.append(names[number])
        if len(share) < load.pack:
            continue
        shares[place] = []
        if lacking[place]:
            yield place, share
            lacking[place] -= 1
            unfinished -= not lacking[place]
            if not unfinished:
                return


class Filling:
    """One topic that is being written."""

    def __init__(self, producer, topic, partitions):
        self.producer, self.topic = producer, topic
        self.batches = [producer.create_batch() for _ in range(partitions)]
        self.sent = deque()
        self.stored = 0  # bytes, as the broker keeps them

    async def add(self, partition, *, key=None, value=None):
        while self.batches[partition].append(key=key, value=value, timestamp=None) is None:
            await self.send(partition)
        if value is not None:
            await self.send(partition)  # a client has one pack for a partition at a time, seldom more

    async def send(self, partition):
        batch, self.batches[partition] = self.batches[partition], self.producer.create_batch()
        self.sent.append((batch, await self.producer.send_batch(batch, self.topic, partition=partition)))
        while len(self.sent) > 4 * len(self.batches):
            await self.settle()

    async def settle(self):
        batch, future = self.sent.popleft()
        await future
        self.stored += batch.size()

    async def end(self):
        for partition, batch in enumerate(self.batches):
            if batch.record_count():
                await self.send(partition)
        while self.sent:
            await self.settle()


async def fill(bootstrap, load, packed, single=None):
    """Writes the topics. Returns (distinct keys over all packs, stored bytes of the packed topic)."""
    rng = random.Random(4)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks=1, compression_type="zstd", max_batch_size=BATCH_BYTES
    )
    await producer.start()
    try:
        packs = Filling(producer, packed, load.partitions)
        singles = Filling(producer, single, load.partitions) if single else None
        keys = 0
        for partition, hints in filled(load):
            lot = rng.random()
            kind = wire.TOUCH if lot < 0.98 else wire.MISS if lot < 0.99 else wire.CHANGE
            counted = Counter(hints)
            keys += len(counted)
            counts = list(counted.values()) if len(counted) < len(hints) else ()
            await packs.add(partition, value=wire.encode_pack(kind, 1, list(counted), counts))
            for key in hints if singles else ():
                await singles.add(partition, key=key)
        for each in (packs, singles):
            if each:
                await each.end()
        return keys, packs.stored
    finally:
        await producer.stop()
