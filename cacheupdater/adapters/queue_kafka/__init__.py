"""The queue of many machines, over a topic of Kafka: see `queue`."""

from cacheupdater.adapters.queue_kafka.queue import KafkaQueue

__all__ = ["KafkaQueue"]
