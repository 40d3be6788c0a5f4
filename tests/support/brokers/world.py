"""A queue on a real broker, and another member of its group that makes partitions move.

The other member reads a topic of its own. Whenever it joins or leaves, the group takes all partitions from us and gives all of
them back, exactly once. A test of shares starts a second queue instead.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from cacheupdater.adapters.queue_kafka import KafkaQueue
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import broker

SESSION = 6.0  # s; heartbeats every 0.4 s show a rebalance


class KafkaWorld:
    """One topic, one group, one queue."""

    never = (
        0.3  # s: a record sent is fetched in a few milliseconds, or with the fetch after the one under way
    )

    def __init__(self, kafka, new_topic, *, partitions=3, session=SESSION, instance=None):
        self.servers = kafka.bootstrap
        self.topic = new_topic(partitions=partitions)
        self.group = f"{self.topic}-group"
        self.session = session
        self.observer = RecordingObserver()
        self.producer = AIOKafkaProducer(bootstrap_servers=self.servers)
        self.queue = self.another(instance=instance, observer=self.observer)
        self._new_topic = new_topic
        self._mover = None
        self.queues = [self.queue]

    def another(self, *, instance=None, observer=None, session=None):
        """A queue of the same group, not started."""
        return KafkaQueue(
            broker.parse(f"kafka://{self.servers}/{self.topic}"),
            group=self.group,
            session=session or self.session,
            instance=instance,
            observer=observer or RecordingObserver(),
            notices=Notices(lambda: 0.0),
        )

    async def start(self):
        await self.producer.start()
        await self.queue.start()
        return self

    async def send(self, partition, payload, *, key=None):
        await self.producer.send_and_wait(self.topic, payload, partition=partition, key=key)

    async def move(self, partitions):
        if self._mover is None:
            self._mover = AIOKafkaConsumer(
                self._new_topic(partitions=1),
                bootstrap_servers=self.servers,
                group_id=self.group,
                session_timeout_ms=6000,
                heartbeat_interval_ms=400,
                rebalance_timeout_ms=15_000,
                enable_auto_commit=False,
                partition_assignment_strategy=(_sticky(),),
            )
            self._joining = asyncio.ensure_future(self._mover.start())
        else:
            await self._joining
            mover, self._mover = self._mover, None
            await mover.stop()

    async def close(self):
        for queue in self.queues:
            await queue.close()
        if self._mover is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
            await self._mover.stop()
        await self.producer.stop()


def _sticky():
    from cacheupdater.adapters.queue_kafka import settings

    return settings.consumer(SESSION)["partition_assignment_strategy"][0]
