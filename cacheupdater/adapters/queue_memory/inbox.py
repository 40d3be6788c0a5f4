"""One partition of the memory queue: unread packs, and packs that were read and are not finished.

Unread packs wait by peer, and a peer's changes wait apart from its reads. These flows take turns by bytes, so that a flood
waits behind its own packs. A pack gets its offset when it is read. A `Fill` holds the amounts that have caps, for all peers
together and for each peer, which must leave room for others. `MemoryQueue` makes and uses one inbox per partition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from cacheupdater.core.fair import Fair, leaves_room
from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

PACK_COST = 64  # bytes by which the cost of a pack exceeds the cost of its keys


@dataclass(slots=True)
class Fill:
    """How much is in an inbox, or how much may be in it."""

    packs: int = 0  # unread
    bytes: int = 0  # of unread packs
    undone: int = 0  # packs, unread or not finished
    undone_bytes: int = 0

    def takes(self, total: Fill, most: Fill, *, size: int, clients: int) -> bool:
        """Whether a peer with this fill, which stands for so many clients, may add a pack and still leaves room for others."""
        return (
            leaves_room(self.packs, total.packs, most.packs, clients)
            and leaves_room(self.bytes, total.bytes + size, most.bytes, clients)
            and leaves_room(self.undone, total.undone, most.undone, clients)
            and leaves_room(self.undone_bytes, total.undone_bytes + size, most.undone_bytes, clients)
        )

    def has_room(self, most: Fill, size: int) -> bool:
        """Whether a pack of `size` fits into an inbox with this fill."""
        return (
            self.packs < most.packs
            and self.bytes + size <= most.bytes
            and self.undone < most.undone
            and self.undone_bytes + size <= most.undone_bytes
        )


class Inbox:
    """The packs of one partition."""

    __slots__ = (
        "_again",
        "_fetched",
        "_fills",
        "_unread",
        "arrived",
        "done",
        "epoch",
        "next",
        "putters",
        "total",
        "watched",
    )

    def __init__(self) -> None:
        self.putters: deque[tuple[asyncio.Future[None], bytes, int]] = deque()  # one per waiting peer
        self.arrived = asyncio.Event()  # set while there are packs to fetch, and once the queue is closed
        self.total = Fill()
        self.watched: dict[
            int, Callable[[bytes], None]
        ] = {}  # by peer: is told of each pack that is finished
        self.next = self.done = self.epoch = 0
        self._fills: dict[int, Fill] = {}
        self._unread: Fair[tuple[int, bool], deque[Message]] = Fair(deque)  # by peer, changes apart
        self._again: deque[Message] = (
            deque()
        )  # read by an earlier owner and not finished, in the order of offsets
        self._fetched: dict[int, Message] = {}  # not finished, by offset, in the order of offsets

    @property
    def read_up_to(self) -> int:
        """The first offset that this owner has not read."""
        return self._again[0].offset if self._again else self.next

    def fill(self, peer: int) -> Fill:
        """How much of the inbox is this peer's."""
        return self._fills.get(peer) or Fill()

    def append(self, payload: bytes, peer: int, *, clients: int) -> None:
        message = Message(-1, payload, peer, clients=clients)
        self._unread.of((peer, wire.is_change(payload))).append(message)
        for fill in (self.total, self._fills.setdefault(peer, Fill())):
            fill.packs += 1
            fill.bytes += len(payload)
            fill.undone += 1
            fill.undone_bytes += len(payload)
        self.arrived.set()

    def take(self, limit: int, held: Collection[int]) -> list[Message]:
        """The next packs of peers that are not `held` back."""
        taken: list[Message] = []
        while len(taken) < limit and (message := self._next(held)):
            taken.append(message)
            self._fetched[message.offset] = message
            self._move(message, -1)
        if not self.total.packs:
            self.arrived.clear()
        return taken

    def finish(self, done: int, beyond: Sequence[int]) -> None:
        if done > self.done:
            self._forget(list(takewhile(done.__gt__, self._fetched)))
            self.done = done
        self._forget(beyond)

    def rewind(self) -> None:
        """A new owner reads again the packs that the last one did not finish."""
        for message in self._fetched.values():
            self._move(message, 1)
        self._again.extendleft(reversed(self._fetched.values()))
        self._fetched.clear()
        self.epoch += 1
        if self.total.packs:
            self.arrived.set()

    def _next(self, held: Collection[int]) -> Message | None:
        if self._again:
            return self._again.popleft()
        unread = self._unread
        flow = unread.first_where(lambda name: name[0] not in held) if held else unread.first()
        if flow is None:
            return None
        message = flow.items.popleft()._replace(offset=self.next)
        unread.serve(flow, (len(message.payload) + PACK_COST) / message.clients)
        self.next += 1
        return message

    def _move(self, message: Message, packs: int) -> None:
        """Count a pack as unread (1), or as fetched (-1)."""
        for fill in (self.total, self._fills[message.peer]):
            fill.packs += packs
            fill.bytes += packs * len(message.payload)

    def _forget(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            message = self._fetched.pop(offset, None)
            if message is None:
                continue
            own = self._fills[message.peer]
            for fill in (self.total, own):
                fill.undone -= 1
                fill.undone_bytes -= len(message.payload)
            if not own.undone:
                del self._fills[message.peer]
            if told := self.watched.get(message.peer):
                told(message.payload)
