"""The door of a process that is alone: its own listeners fill its memory queue.

`doors.door_for` makes it for `memory://`. Hints in the queue are lost with the process, so `finish` waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cacheupdater.adapters.listener_memory import MemoryListener
from cacheupdater.adapters.listener_stream import StreamListener
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.config.addresses import MemoryAddress
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.config.addresses import Address
    from cacheupdater.ports import Observer

log = logging.getLogger(__name__)

LOOK_EVERY = 0.02  # seconds between two looks at a state that has no event: an empty queue


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
    def conditions(self) -> dict[str, bool]:
        return {"queue": self.open_now}

    @property
    def clients(self) -> int | None:
        """How many peers are connected to the sockets; None with a mailbox, whose clients cannot be counted."""
        return None if self._boxes else self._streams.peers

    @property
    def session(self) -> float | None:
        """None: this process shares its queue with nobody."""
        return None

    async def find(self) -> int:
        return self.partitions

    async def run(self) -> None:
        """Nothing: the listeners put hints on the queue as they come."""

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
