"""The queue of the group's stories in Kafka: the records of a topic and the history of its group.

A consumer of the test's own reads them after a run.

Commits are read from `__consumer_offsets`, the topic in which the broker keeps them. It has every commit with the broker's
time, so no watcher must poll while the updaters work, and no commit is missed between two polls. It also has each generation
of the group, and so every rebalance. (Only records older than a segment of 100 MB are compacted away.)
"""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from typing import NamedTuple

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from cacheupdater.local.kafka_topics import done
from group import packs
from group.ledger import MILLISECOND, Commits

HISTORY = "__consumer_offsets"


class Generation(NamedTuple):
    """One generation of the group."""

    number: int
    at: float  # seconds of Unix time
    members: int


class Topic:
    """A topic, and one group of its readers. The group has the topic's name, for other tests have groups on the same broker."""

    def __init__(self, servers, name):
        self.servers, self.name = servers, name
        self.emit = f"kafka://{servers}/{name}"

    def url(self, session, instance=None):
        """The queue's URL in the configuration of a member."""
        static = f"&instance={instance}" if instance else ""
        return f"{self.emit}?group={self.name}&session_timeout={session}s{static}"

    def is_free(self):
        return True  # no process holds up a broker

    @property
    def behind(self):
        """The number of records that the group has not committed."""
        return done(_behind(self.servers, self.name, self.name))

    def records(self):
        return packs.records(done(_read(self.servers, self.name)))

    def commits(self):
        return done(_commits(self.servers, self.name, self.name))

    def generations(self):
        return done(_generations(self.servers, self.name))


async def _read(servers, topic):
    return [(each.partition, each.offset, each.value or b"") async for each in _records(servers, topic)]


async def _commits(servers, topic, group):
    found = []
    async for record in _records(servers, HISTORY):
        about = _Reader(record.key)
        if about.int16() > 1 or about.text() != group or about.text() != topic or not record.value:
            continue
        partition, value = about.int32(), _Reader(record.value)
        value.begin(known=4)
        offset = value.int64()
        if value.version >= 3:
            value.int32()  # the leader's epoch
        value.text()  # metadata
        # the broker's time is cut to milliseconds
        found.append((partition, offset, (value.int64() + 1) * MILLISECOND))
    return Commits(*np.array(found, dtype=np.int64).reshape(-1, 3).T)


async def _generations(servers, group):
    found = {}
    async for record in _records(servers, HISTORY):
        about = _Reader(record.key)
        if about.int16() != 2 or about.text() != group or not record.value:
            continue
        value = _Reader(record.value)
        value.begin(known=4)
        value.text()  # the kind of protocol
        number = value.int32()
        value.text(), value.text()  # protocol, leader
        if value.version >= 2:
            value.int64()  # time
        found.setdefault(number, Generation(number, record.timestamp / 1000, value.count()))
    return list(found.values())


async def _behind(servers, topic, group):
    async with _consumer(servers, topic) as (consumer, places):
        ends = await consumer.end_offsets(places)
        firsts = await consumer.beginning_offsets(places)
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        committed = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    reached = {at: max(firsts[at], committed[at].offset if at in committed else 0) for at in places}
    return sum(ends[at] - reached[at] for at in places)


async def _records(servers, topic):
    async with _consumer(servers, topic) as (consumer, places):
        ends = await consumer.end_offsets(places)
        for at, first in (await consumer.beginning_offsets(places)).items():
            consumer.seek(at, first)
        left = {at for at in places if await consumer.position(at) < ends[at]}
        while left:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    yield record
            left = {at for at in left if await consumer.position(at) < ends[at]}


@asynccontextmanager
async def _consumer(servers, topic):
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, fetch_max_wait_ms=50, auto_offset_reset="earliest")
    await consumer.start()
    try:
        known = await consumer._client.fetch_all_metadata()
        places = [TopicPartition(topic, number) for number in known.partitions_for_topic(topic) or ()]
        assert places, f"there is no topic {topic}"
        consumer.assign(places)
        yield consumer, places
    finally:
        await consumer.stop()


class _Reader:
    """The broker's own records: big-endian numbers, texts with their lengths; from version 4 on lengths are short."""

    def __init__(self, data):
        self._data = data
        self._at = 0
        self.version = 0

    def begin(self, *, known):
        self.version = self.int16()
        assert self.version <= known, f"the broker keeps this in a format that we do not know, {self.version}"

    def _take(self, kind, size):
        (value,) = struct.unpack_from(kind, self._data, self._at)
        self._at += size
        return value

    def int16(self):
        return self._take(">h", 2)

    def int32(self):
        return self._take(">i", 4)

    def int64(self):
        return self._take(">q", 8)

    def count(self):
        """The number of items that follow."""
        return self._short() - 1 if self.version >= 4 else self.int32()

    def text(self):
        size = max(0, self._short() - 1 if self.version >= 4 else self.int16())
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def _short(self):
        """Seven bits a byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self._take(">B", 1)
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
