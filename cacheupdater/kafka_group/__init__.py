"""A membership in a consumer group of Kafka, as the queue of hints and the feed `debezium` have it: see `consumer`."""

from cacheupdater.kafka_group.consumer import Denied, GroupConsumer, MovedOn, OutOfRange

__all__ = ["Denied", "GroupConsumer", "MovedOn", "OutOfRange"]
