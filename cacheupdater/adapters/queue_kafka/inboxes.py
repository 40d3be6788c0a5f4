"""The packs that were read and not yet fetched by their partition: one inbox for each partition, from the poller to `fetch`.

The queue makes an inbox when it first gains a partition, and keeps it for life, so that epochs never repeat. The content of
an inbox belongs to one epoch and is dropped with it. Packs wait in parcels, as the broker stores them, and are unpacked when the
partition fetches them. A full inbox is held: the consumer pauses the partition until half of the inbox is unpacked. So memory
stays bounded with any lag. No method here waits; `fetch` waits for `arrived`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.adapters.queue_kafka.batches import Mark
    from cacheupdater.adapters.queue_kafka.parcels import Parcel
    from cacheupdater.ports import Message

# Per partition, as the broker stores the packs. One fetch may exceed these limits.
INBOX_PACKS_MAX = 1024
INBOX_BYTES_MAX = 1024 * 1024  # 100 packs of 500 keys that are not compressed


class Inbox:
    """The inbox of one partition."""

    __slots__ = (
        "arrived",
        "bytes",
        "committed",
        "crowded",
        "end",
        "epoch",
        "held",
        "known",
        "mark",
        "next",
        "open",
        "packs",
        "parcels",
        "rest",
        "skips",
        "taken",
        "torn",
        "unpacked",
        "unread",
    )

    def __init__(self) -> None:
        self.parcels: deque[Parcel] = deque()  # the first one may be half unpacked
        self.rest: Iterator[Message | None] | None = (
            None  # the packs of the first parcel; None: its reading has not begun
        )
        self.unread: deque[Message] = deque()  # unpacked; see `unpacking.AHEAD_PACKS`
        self.arrived = asyncio.Event()  # set while there is something to fetch, and once the queue is closed
        self.epoch = self.bytes = self.packs = 0
        self.next = 0  # the offset that the consumer reads next
        self.unpacked = 0  # everything before it was unpacked
        self.taken = 0  # everything before it was fetched by the partition
        self.committed = 0
        self.end = 0  # the partition's end that a broker named last
        self.known = False  # the partition has been read before, so packs that are gone count as lost
        self.open = False  # ours, and commits of this epoch count
        self.held = False  # full: the consumer has paused the partition
        self.mark: Mark | None = None  # how far the batch was read when it was closed to make room for others
        self.crowded = False  # there was no room for the inbox's batch; there will be soon
        self.skips = False  # the last batch could not be read
        self.torn = (-1, 0)  # the offset of a torn batch, and how often in a row it was torn

    def begin(self, offset: int, *, known: bool) -> None:
        """A new epoch begins at this offset."""
        self.epoch += 1
        self.known = known
        self.next = self.unpacked = self.taken = self.committed = self.end = offset
        self.open = True
        self.held = False

    def over(self) -> None:
        """The epoch has ended: its commits do not count any more."""
        self.open = False
        self.quiet()

    def quiet(self) -> None:
        """Drop everything that has not been fetched: it is for the next owner."""
        self.unread.clear()
        self.forget()
        self.arrived.clear()

    def put(self, parcel: Parcel) -> None:
        """Add the next parcel of the consumer."""
        self.parcels.append(parcel)
        self.bytes += len(parcel.raw)
        self.packs += parcel.packs
        self.next = parcel.end
        self.known = True
        self.arrived.set()

    def used_up(self) -> None:
        """The first parcel is fully unpacked."""
        parcel = self.parcels.popleft()
        self.bytes -= len(parcel.raw)
        self.packs -= parcel.packs
        self.rest = None
        if not self.parcels and not self.unread:
            self.arrived.clear()

    def forget(self) -> None:
        """Drop the parcels: they will be read again, from the last unpacked offset."""
        self.parcels.clear()
        self.rest = self.mark = None
        self.bytes = self.packs = 0
        if not self.unread:
            self.arrived.clear()

    def take(self, limit: int) -> list[Message]:
        """The next unpacked packs, at most `limit`."""
        unread = self.unread
        taken = [unread.popleft() for _ in range(min(limit, len(unread)))]
        if not unread and not self.parcels:
            self.arrived.clear()
        self.taken = taken[-1].offset + 1
        return taken

    @property
    def full(self) -> bool:
        return self.packs >= INBOX_PACKS_MAX or self.bytes >= INBOX_BYTES_MAX

    @property
    def roomy(self) -> bool:
        """Whether half of the inbox is free again. With only one mark, each pack would pause and resume the partition."""
        return self.packs <= INBOX_PACKS_MAX // 2 and self.bytes <= INBOX_BYTES_MAX // 2
