"""The queue that a configuration names, for a process that takes packs from it: an updater behind its door, or a drain.

`service.shared_doors` and `drain` call these functions once per process. `service.waiting` needs the depot alone. Each kind of
queue has its adapter, which is imported only if somebody asks for it. Nothing is contacted yet.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from cacheupdater.config.queues import KafkaQueueConfig, SqlQueueConfig, StreamsQueueConfig
from cacheupdater.errors import Misconfigured
from cacheupdater.ports import Queue
from cacheupdater_client.protocol.broker import PACKAGES

if TYPE_CHECKING:
    from typing import TypeAlias

    from cacheupdater.adapters.depot_redis import RedisDepot
    from cacheupdater.adapters.depot_sql.postgres import PostgresDepot
    from cacheupdater.adapters.depot_sql.sqlite import SqliteDepot
    from cacheupdater.adapters.queue_depot import DepotQueue
    from cacheupdater.adapters.queue_kafka import KafkaQueue
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer, Troubles

    SharedConfig: TypeAlias = KafkaQueueConfig | StreamsQueueConfig | SqlQueueConfig


class SharedQueue(Queue, Protocol):
    """A queue that outlives this process, and that several processes share."""

    @property
    def partitions(self) -> int: ...

    @property
    def joined(self) -> bool:
        """Whether this process is one of them now, even if it owns no partition yet."""
        ...

    async def start(self) -> None:
        """Waits for the queue."""
        ...


def shared_queue(config: SharedConfig, *, observer: Observer, notices: Notices) -> SharedQueue:
    """The queue. Raises Misconfigured if its package is not installed."""
    if isinstance(config, KafkaQueueConfig):
        return kafka_queue(config, observer=observer, notices=notices)
    return depot_queue(config, observer=observer, notices=notices)


def kafka_queue(config: KafkaQueueConfig, *, observer: Observer, notices: Notices) -> KafkaQueue:
    """The consumer group of a topic."""
    try:
        from cacheupdater.adapters.queue_kafka import KafkaQueue  # noqa: PLC0415  aiokafka is an extra
    except ModuleNotFoundError as e:
        raise Misconfigured(f"a queue in Kafka needs {e.name}: pip install {PACKAGES}") from None
    return KafkaQueue(
        config.address,
        group=config.group,
        session=config.session,
        instance=config.instance,
        observer=observer,
        notices=notices,
    )


def depot_queue(
    config: StreamsQueueConfig | SqlQueueConfig, *, observer: Observer, notices: Notices
) -> DepotQueue:
    """The members of a depot, and its packs."""
    from cacheupdater.adapters.queue_depot import DepotQueue  # noqa: PLC0415  not for other queues

    depot = depot_of(config, observer=observer, notices=notices)
    return DepotQueue(depot, session=config.session, member=_member(), observer=observer, notices=notices)


def depot_of(
    config: StreamsQueueConfig | SqlQueueConfig, *, observer: Observer, notices: Troubles
) -> RedisDepot | PostgresDepot | SqliteDepot:
    """What keeps the packs of this queue."""
    if isinstance(config, StreamsQueueConfig):
        from cacheupdater.adapters.depot_redis import RedisDepot  # noqa: PLC0415  not for other queues

        return RedisDepot(config.address, observer=observer, notices=notices)
    from cacheupdater.adapters.depot_sql import depot_at  # noqa: PLC0415  not for other queues

    return depot_at(config.address)


def _member() -> str:
    """The name of this process among those that share a depot. It tells people which process it is, and none comes twice."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
