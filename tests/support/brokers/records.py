"""Reads a topic back, from its first record to its last."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition

from cacheupdater.local import kafka_topics


async def records_of(bootstrap, topic):
    """All of a topic: (partition, key, value) for each record."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [
            TopicPartition(topic, number) for number in await kafka_topics.leaders(bootstrap, topic)
        ]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends, found = await consumer.end_offsets(partitions), []
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for each, records in (await consumer.getmany(timeout_ms=100)).items():
                found += [(each.partition, record.key, record.value) for record in records]
        return found
    finally:
        await consumer.stop()
