"""How hints reach this process: through a memory queue that its own listeners fill, or through a topic or a depot that others fill.

`Service.run` makes one door and calls, in this order: `find` (waits for the queue), `open` (accepts hints), `close` (lets
nothing new in), `finish` (waits until accepted hints are done, as long as there is time). The supervisor handles the hints
behind the door.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from cacheupdater.adapters.listener_memory import MemoryListener
from cacheupdater.adapters.listener_stream import StreamListener
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.config.addresses import MemoryAddress
from cacheupdater.config.queues import KafkaQueueConfig, StreamsQueueConfig
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.adapters.queue_depot import DepotQueue
    from cacheupdater.adapters.queue_kafka import KafkaQueue
    from cacheupdater.config.addresses import Address
    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer, Queue

log = logging.getLogger(__name__)

LOOK_EVERY = 0.02  # seconds between two looks at states that have no event: an empty queue, a joined group


class Door(Protocol):
    """The door of one process."""

    @property
    def queue(self) -> Queue: ...

    @property
    def partitions(self) -> int:
        """The number of partitions of the whole queue. Known once the queue is found."""
        ...

    @property
    def open_now(self) -> bool:
        """Whether the door accepts hints."""
        ...

    @property
    def clients(self) -> int | None:
        """How many clients are connected; None if that cannot be known."""
        ...

    async def find(self) -> int:
        """Waits for the queue. Returns the number of its partitions."""
        ...

    async def open(self) -> str:
        """Accept hints. Returns the addresses."""
        ...

    async def owner(self, partition: int) -> str | None:
        """The other updater that owns this partition. None: no updater owns it. Raises CacheUpdaterError."""
        ...

    def declare(self, prefixes: list[bytes]) -> None:
        """Tell the clients which keys are refreshed from now on: those that begin so. Called before `open` too."""
        ...

    async def close(self) -> None: ...

    async def finish(self, deadline: float) -> None:
        """Waits until the accepted hints are done, or until `deadline`."""
        ...


def door_for(config: Config, *, observer: Observer, notices: Notices) -> Door:
    """The door for the configured queue."""
    if isinstance(config.queue, KafkaQueueConfig):
        return KafkaDoor(config.queue, observer, notices)
    if isinstance(config.queue, StreamsQueueConfig):
        return StreamsDoor(config.queue, observer, notices)
    return MemoryDoor(config.queue.partitions, config.listen, observer=observer)


class MemoryDoor:
    """The queue lives and dies with this process, and so do its listeners."""

    def __init__(self, partitions: int, listen: Sequence[Address], *, observer: Observer) -> None:
        self.queue = MemoryQueue(partitions)
        self.partitions = partitions
        self.open_now = False
        self._hello = hello = wire.Hello(partitions, [])  # until `declare`, which comes before `open`
        self._sockets = [str(each) for each in listen if not isinstance(each, MemoryAddress)]
        self._mailboxes = [str(each) for each in listen if isinstance(each, MemoryAddress)]
        self._streams = StreamListener(self.queue, hello, observer=observer)
        self._boxes = [
            MemoryListener(self.queue.put, self.queue.newcomer(), hello=hello, observer=observer)
            for _ in self._mailboxes
        ]

    @property
    def clients(self) -> int | None:
        """How many peers are connected to the sockets; None with a mailbox, whose clients cannot be counted."""
        return None if self._boxes else self._streams.peers

    async def find(self) -> int:
        return self.partitions

    async def open(self) -> str:
        await self._streams.start(self._sockets)
        for box, address in zip(self._boxes, self._mailboxes, strict=True):
            await box.start(address)
        self.open_now = True
        return " ".join([*self._streams.addresses, *self._mailboxes])

    async def owner(self, partition: int) -> str | None:  # noqa: ARG002  no other updater can have any
        return None

    def declare(self, prefixes: list[bytes]) -> None:
        if prefixes == self._hello.prefixes:
            return
        self._hello = wire.Hello(self.partitions, prefixes)
        self._streams.greet(self._hello)
        for box in self._boxes:
            box.greet(self._hello)

    async def close(self) -> None:
        self.open_now = False
        await self._streams.close()
        for box in self._boxes:
            await box.close()

    async def finish(self, deadline: float) -> None:
        """Waits until the queue is empty, for its packs are lost with this process."""
        clock = asyncio.get_running_loop().time
        while self._left() and clock() < deadline:  # noqa: ASYNC110  no event says "all done"
            await asyncio.sleep(LOOK_EVERY)
        if left := self._left():
            log.warning("%d packs were not finished in time and are given up", left)

    def _left(self) -> int:
        return sum(map(self.queue.backlog, range(self.partitions)))


class KafkaDoor:
    """The topic outlives this process: the next owner reads again whatever is not finished."""

    def __init__(self, config: KafkaQueueConfig, observer: Observer, notices: Notices) -> None:
        from cacheupdater.adapters.queue_kafka import KafkaQueue  # noqa: PLC0415  aiokafka is an extra

        self.queue: KafkaQueue = KafkaQueue(
            config.address,
            group=config.group,
            session=config.session,
            instance=config.instance,
            observer=observer,
            notices=notices,
        )
        self._config = config
        self._where = f"{config.address} group {config.group}"

    @property
    def partitions(self) -> int:
        return self.queue.partitions

    @property
    def open_now(self) -> bool:
        return self.queue.joined

    @property
    def clients(self) -> int | None:
        """Unknown: clients send to the topic."""
        return None

    async def find(self) -> int:
        await self.queue.start()
        return self.partitions

    async def open(self) -> str:
        """Waits until this process is a member of the group, even if it owns no partition yet."""
        while not self.queue.joined:  # noqa: ASYNC110  set while the supervisor reads the assignments
            await asyncio.sleep(LOOK_EVERY)
        return self._where

    async def owner(self, partition: int) -> str | None:
        from cacheupdater.adapters.topic_kafka.owners import owner_of  # noqa: PLC0415  aiokafka is an extra

        return await owner_of(self._config.address, self._config.group, partition)

    def declare(self, prefixes: list[bytes]) -> None:
        """Nothing to tell: clients send all keys to the topic."""

    async def close(self) -> None:
        """Nothing to close: the hand-over of the partitions ends the work here."""

    async def finish(self, deadline: float) -> None:
        """Nothing to wait for: unfinished work is handed over."""


class StreamsDoor:
    """The streams outlive this process: the next owner reads again whatever is not finished."""

    def __init__(self, config: StreamsQueueConfig, observer: Observer, notices: Notices) -> None:
        from cacheupdater.adapters.depot_redis import RedisDepot  # noqa: PLC0415  not for other queues
        from cacheupdater.adapters.queue_depot import DepotQueue  # noqa: PLC0415  as above

        depot = RedisDepot(config.address, observer=observer, notices=notices)
        self.queue: DepotQueue = DepotQueue(
            depot, session=config.session, member=_member(), observer=observer, notices=notices
        )
        self._where = str(config.address)

    @property
    def partitions(self) -> int:
        return self.queue.partitions

    @property
    def open_now(self) -> bool:
        return self.queue.joined

    @property
    def clients(self) -> int | None:
        """Unknown: clients send to the streams."""
        return None

    async def find(self) -> int:
        await self.queue.start()
        return self.partitions

    async def open(self) -> str:
        """Waits until the session of this process runs, even if it owns no partition yet."""
        while not self.queue.joined:  # noqa: ASYNC110  set while the supervisor reads the assignments
            await asyncio.sleep(LOOK_EVERY)
        return self._where

    async def owner(self, partition: int) -> str | None:
        return self.queue.owner(partition)

    def declare(self, prefixes: list[bytes]) -> None:
        """Nothing to tell: clients send all keys to the streams."""

    async def close(self) -> None:
        """Nothing to close: the hand-over of the partitions ends the work here."""

    async def finish(self, deadline: float) -> None:
        """Nothing to wait for: unfinished work is handed over."""


def _member() -> str:
    """The name of this process among those that share streams. It tells people which process it is, and none comes twice."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
