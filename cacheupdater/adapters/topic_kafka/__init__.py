"""A topic of Kafka, inspected and created for an operator: see `topic`."""

from cacheupdater.adapters.topic_kafka.topic import Made, Topic, create, inspect, unreadable

__all__ = ["Made", "Topic", "create", "inspect", "unreadable"]
