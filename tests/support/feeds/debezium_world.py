"""The world of feeds that read Debezium's topics: a real Kafka, and a connector's events of one table with REPLICA IDENTITY FULL.

A transaction's events come to the topic at its commit, in its order, as from a connector. A changed primary key is the deletion of
one row, a tombstone, and the insertion of another.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer, TopicPartition

from cacheupdater.adapters.feed_debezium import DebeziumFeed, DebeziumSettings
from cacheupdater.feed_ports import Watched
from cacheupdater.kafka_group import GroupConsumer
from cacheupdater.local import kafka_topics
from cacheupdater_client.protocol import broker
from feeds.debezium_events import event, key
from feeds.memory_world import Rollback

SESSION_S = 6.0  # the least that brokers allow by default


class Rows:
    """The statements of one transaction."""

    def __init__(self, shelves):
        self._shelves = shelves  # of the rows that are committed
        self.records = []

    async def insert(self, *ids):
        for each in ids:
            self._put("c", each, None, self._row(each, 0))

    async def update(self, each, shelf):
        self._put("u", each, self._row(each, self._shelves.get(each, 0)), self._row(each, shelf))

    async def rekey(self, old, new):
        await self.delete(old)
        self._put("c", new, None, self._row(new, 0))

    async def delete(self, each):
        self._put("d", each, self._row(each, self._shelves.get(each, 0)), None)
        self.records.append((key(each), None))

    async def truncate(self):
        self.records.append((None, event("t")))

    def _put(self, op, each, before, after):
        self.records.append((key(each), event(op, before, after)))
        if after is not None:
            self._shelves[each] = after["shelf"]

    def _row(self, each, shelf):
        return {"id": each, "shelf": shelf}


class DebeziumWorld:
    """One topic, whose group has begun."""

    table = "public.items"
    tells = frozenset({"deletes", "truncates", "old keys", "losses", "nothing twice"})

    def __init__(self, kafka, prefix):
        self.servers, self.prefix = kafka.bootstrap, prefix
        self.topic = f"{prefix}.public.items"
        self.settings = DebeziumSettings(
            broker.parse_cluster(f"kafka://{kafka.bootstrap}"),
            prefix,
            f"{prefix}-feed",
            (Watched("items", ("id", "shelf")),),
            session=SESSION_S,
        )
        self.shelves = {}
        self.feeds = []
        self._producer = AIOKafkaProducer(bootstrap_servers=self.servers)

    async def start(self):
        await self._producer.start()
        await kafka_topics.create(self.servers, self.topic, partitions=1)
        feed = self.feed()
        await feed.start()
        async for batch in feed.batches():
            await feed.confirm(batch.position)
            if batch.emptied:
                break
        await feed.stop()
        return self

    def feed(self):
        self.feeds.append(DebeziumFeed(self.settings))
        return self.feeds[-1]

    @asynccontextmanager
    async def transaction(self):
        rows = Rows(self.shelves)
        try:
            yield rows
        except Rollback:
            return
        await self.send(*rows.records)

    async def send(self, *records, partition=0, topic=None):
        """Puts records (key, value) into the topic."""
        sent = [
            await self._producer.send(topic or self.topic, value, key=key, partition=partition)
            for key, value in records
        ]
        await asyncio.gather(*sent)

    async def grow(self, partitions):
        """Somebody adds partitions to the topic."""
        await kafka_topics.add_partitions(self.servers, self.topic, total=partitions)
        await self._producer.client.force_metadata_update()

    async def kill(self, feed):
        """As `kill -9`: the connections end, and nobody says goodbye to the group."""
        feed._consumer._consumer._coordinator._maybe_leave_group = _nothing
        await feed.stop()

    async def lose(self):
        """Somebody deletes the topic, and the connector makes it anew. Its offsets are deleted with it."""
        await kafka_topics.delete(self.servers, self.topic)
        await kafka_topics.create(self.servers, self.topic, partitions=1)

    async def committed(self):
        """The offset that the group has committed; None: none."""
        consumer = GroupConsumer(self.settings.address, group=self.settings.group, enable_auto_commit=False)
        await consumer.connect()
        at = TopicPartition(self.topic, 0)
        try:
            return (await consumer.committed([at])).get(at)
        finally:
            await consumer.close()

    async def close(self):
        for each in self.feeds:
            await each.stop()
        await self._producer.stop()
        await kafka_topics.delete(self.servers, self.topic)


async def _nothing():
    """A process that is killed says nothing."""
