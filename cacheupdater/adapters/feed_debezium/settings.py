"""What a feed of Debezium's topics is told, and its limits. `service` makes the settings from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.feed_ports import SILENCE_MAX
from cacheupdater.kafka_group.settings import REBALANCE, SESSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.feed_ports import Watched
    from cacheupdater_client.protocol.broker import Address

EVENTS_MAX = 200  # of a batch: 4 ms of the event loop if each brings its schema, 2 ms if none does
FETCH_BYTES = 1024 * 1024  # per partition and fetch, as stored: 200 events with their schemas, 2,000 without
FETCH_BYTES_ALL = 8 * 1024 * 1024  # per fetch, with any number of partitions
POLL_S = 0.1  # seconds that a poll waits for events; so late is a stop, or the end of a rebalance, seen at the most
QUIET_S = (
    SILENCE_MAX / 2
)  # seconds without an event until an empty batch, after the brokers have answered a question
STALL_S = 3 * SILENCE_MAX  # seconds in which events wait and none comes, until the consumer is made anew
AGAIN_S = 0.1  # seconds until a commit is tried again that a rebalance has refused
LOOK_S = 30.0  # seconds between two looks for a topic that is missing: each lists all topics of the cluster
CONFIRM_S = (
    REBALANCE + 5.0
)  # seconds of such tries: a rebalance takes no longer than that, or the group is lost


class DebeziumSettings(NamedTuple):
    """The topics of one connector."""

    address: Address  # of the brokers; its topic is empty
    prefix: str  # the connector's `topic.prefix`
    group: str  # one for each Redis that is kept fresh from these topics
    watched: Sequence[Watched]
    session: float = SESSION  # seconds of silence after which the turn goes to another reader
    look: float = LOOK_S
