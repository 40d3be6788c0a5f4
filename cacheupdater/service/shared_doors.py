"""The door of an updater whose queue is shared: a topic, streams of a Redis, or tables of a database, which others fill.

`doors.door_for` calls `shared_door` once per process. `collector.shared_queue` makes the queue behind the door.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.config.queues import KafkaQueueConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cacheupdater.collector.shared_queue import SharedQueue
    from cacheupdater.config.queues import SqlQueueConfig, StreamsQueueConfig
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
    return _depot_door(config, observer, notices)


class SharedDoor:
    """The next owner reads again whatever is not finished, so nothing is closed here and nothing waited for at the end."""

    def __init__(
        self, queue: SharedQueue, where: str, *, owner: Callable[[int], Awaitable[str | None]], session: float
    ) -> None:
        self.queue = queue
        self.session: float | None = session
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
    from cacheupdater.adapters.topic_kafka.owners import owner_of  # noqa: PLC0415  aiokafka is an extra
    from cacheupdater.collector.shared_queue import kafka_queue  # noqa: PLC0415  not for a queue in memory

    queue = kafka_queue(config, observer=observer, notices=notices)
    return SharedDoor(
        queue,
        f"{config.address} group {config.group}",
        owner=lambda partition: owner_of(config.address, config.group, partition),
        session=config.session,
    )


def _depot_door(config: StreamsQueueConfig | SqlQueueConfig, observer: Observer, notices: Notices) -> Door:
    from cacheupdater.collector.shared_queue import depot_queue  # noqa: PLC0415  not for a queue in memory

    queue = depot_queue(config, observer=observer, notices=notices)

    async def owner(partition: int) -> str | None:
        return queue.owner(partition)

    return SharedDoor(queue, str(config.address), owner=owner, session=config.session)
