"""Changes of rows that a connector of Debezium has put into topics of Kafka: see `feed`."""

from cacheupdater.adapters.feed_debezium.checks import DebeziumChecks
from cacheupdater.adapters.feed_debezium.feed import DebeziumFeed
from cacheupdater.adapters.feed_debezium.settings import DebeziumSettings

__all__ = ["DebeziumChecks", "DebeziumFeed", "DebeziumSettings"]
