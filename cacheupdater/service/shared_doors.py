"""The door of an updater whose queue is shared: a topic, streams of a Redis, or tables of a database, which others fill.

`doors.door_for` calls `shared_door` once per process. Each kind of queue has its adapter, which is imported only here and only if the
configuration names it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from cacheupdater.config.queues import KafkaQueueConfig, SqlQueueConfig, StreamsQueueConfig
from cacheupdater.ports import Queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cacheupdater.depot_ports import Depot
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer
    from cacheupdater.service.door import Door

LOOK_EVERY = 0.02  # seconds between two looks at a state that has no event: a joined group


def shared_door(
    config: KafkaQueueConfig | StreamsQueueConfig | SqlQueueConfig, observer: Observer, notices: Notices
) -> Door:
    """The door for a queue that updaters share."""
    if isinstance(config, KafkaQueueConfig):
        return _kafka_door(config, observer, notices)
    if isinstance(config, StreamsQueueConfig):
        return _streams_door(config, observer, notices)
    return _sql_door(config, observer, notices)


class SharedQueue(Queue, Protocol):
    """A queue that outlives this process, and that several updaters share."""

    @property
    def partitions(self) -> int: ...

    @property
    def joined(self) -> bool:
        """Whether this process is one of them now, even if it owns no partition yet."""
        ...

    async def start(self) -> None:
        """Waits for the queue."""
        ...


class SharedDoor:
    """The next owner reads again whatever is not finished, so nothing is closed here and nothing waited for at the end."""

    def __init__(
        self, queue: SharedQueue, where: str, *, owner: Callable[[int], Awaitable[str | None]]
    ) -> None:
        self.queue = queue
        self._owner = owner
        self._where = where

    @property
    def partitions(self) -> int:
        return self.queue.partitions

    @property
    def open_now(self) -> bool:
        return self.queue.joined

    @property
    def conditions(self) -> dict[str, bool]:
        return {"queue": self.open_now}

    @property
    def clients(self) -> int | None:
        """Unknown: clients send to the queue."""
        return None

    async def find(self) -> int:
        await self.queue.start()
        return self.partitions

    async def run(self) -> None:
        """Nothing: the supervisor reads the queue."""

    async def open(self) -> str:
        """Waits until this process is one of those that share the queue."""
        while not self.queue.joined:  # noqa: ASYNC110  set while the supervisor reads the assignments
            await asyncio.sleep(LOOK_EVERY)
        return self._where

    async def owner(self, partition: int) -> str | None:
        return await self._owner(partition)

    def declare(self, prefixes: list[bytes]) -> None:
        """Nothing to tell: clients send all keys to the queue."""

    async def close(self) -> None:
        """Nothing to close: the hand-over of the partitions ends the work here."""

    async def finish(self, deadline: float) -> None:
        """Nothing to wait for: unfinished work is handed over."""


def _kafka_door(config: KafkaQueueConfig, observer: Observer, notices: Notices) -> Door:
    from cacheupdater.adapters.queue_kafka import KafkaQueue  # noqa: PLC0415  aiokafka is an extra
    from cacheupdater.adapters.topic_kafka.owners import owner_of  # noqa: PLC0415  as above

    queue = KafkaQueue(
        config.address,
        group=config.group,
        session=config.session,
        instance=config.instance,
        observer=observer,
        notices=notices,
    )
    return SharedDoor(
        queue,
        f"{config.address} group {config.group}",
        owner=lambda partition: owner_of(config.address, config.group, partition),
    )


def _streams_door(config: StreamsQueueConfig, observer: Observer, notices: Notices) -> Door:
    from cacheupdater.adapters.depot_redis import RedisDepot  # noqa: PLC0415  not for other queues

    depot = RedisDepot(config.address, observer=observer, notices=notices)
    return _depot_door(depot, config, observer, notices)


def _sql_door(config: SqlQueueConfig, observer: Observer, notices: Notices) -> Door:
    from cacheupdater.adapters.depot_sql import depot_at  # noqa: PLC0415  not for other queues

    return _depot_door(depot_at(config.address), config, observer, notices)


def _depot_door(
    depot: Depot, config: StreamsQueueConfig | SqlQueueConfig, observer: Observer, notices: Notices
) -> Door:
    from cacheupdater.adapters.queue_depot import DepotQueue  # noqa: PLC0415  not for other queues

    queue = DepotQueue(depot, session=config.session, member=_member(), observer=observer, notices=notices)

    async def owner(partition: int) -> str | None:
        return queue.owner(partition)

    return SharedDoor(queue, str(config.address), owner=owner)


def _member() -> str:
    """The name of this process among those that share a depot. It tells people which process it is, and none comes twice."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
