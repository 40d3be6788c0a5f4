"""What was read and waits for its partition: one lane each, between the poller and `fetch`.

The queue makes a lane when it first gains a partition and keeps it for life, for epochs must never repeat; what lies in it
belongs to one epoch and goes with it. It waits as the broker stores it, in parcels, and is unpacked when the partition asks for packs.
A full lane is held back (the consumer pauses the partition) until half of it is unpacked, so memory stays bounded whatever the lag.
Nothing here awaits, except for whoever waits for the first parcel.
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

# Per partition, as the broker stores them. One fetch may come on top.
LANE_PACKS_MAX = 1024
LANE_BYTES_MAX = 1024 * 1024  # 100 packs of 500 keys that are not compressed


class Lane:
    """One partition's."""

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
        self.rest: Iterator[Message | None] | None = None  # of the first one; None: it must be begun
        self.unread: deque[Message] = deque()  # unpacked; never more than one fetch of the partition takes
        self.arrived = asyncio.Event()  # set while there is something to fetch, or nothing ever will be
        self.epoch = self.bytes = self.packs = 0
        self.next = 0  # the offset that the consumer reads next
        self.unpacked = 0  # everything before it was unpacked
        self.taken = 0  # everything before it was fetched by the partition
        self.committed = 0
        self.end = 0  # the highest end of the partition that a broker has told us
        self.known = False  # somebody has read this partition before, so what is gone was lost
        self.open = False  # ours, and commits of this epoch count
        self.held = False  # full: the consumer has paused it
        self.mark: Mark | None = None  # how far the batch has been read that made room for others
        self.crowded = False  # there was no room for its batch, and will be soon
        self.skips = False  # the last batch could not be read
        self.torn = (-1, 0)  # at which offset, how often in a row

    def begin(self, offset: int, *, known: bool) -> None:
        """A new epoch, from here."""
        self.epoch += 1
        self.known = known
        self.next = self.unpacked = self.taken = self.committed = self.end = offset
        self.open = True
        self.held = False

    def over(self) -> None:
        """The epoch has ended: commits do not count any more."""
        self.open = False
        self.quiet()

    def quiet(self) -> None:
        """What has not been fetched is for the next owner."""
        self.unread.clear()
        self.forget()
        self.arrived.clear()

    def put(self, parcel: Parcel) -> None:
        """What the consumer has read next."""
        self.parcels.append(parcel)
        self.bytes += len(parcel.raw)
        self.packs += parcel.packs
        self.next = parcel.end
        self.known = True
        self.arrived.set()

    def used_up(self) -> None:
        """All of the first parcel is unpacked."""
        parcel = self.parcels.popleft()
        self.bytes -= len(parcel.raw)
        self.packs -= parcel.packs
        self.rest = None
        if not self.parcels and not self.unread:
            self.arrived.clear()

    def forget(self) -> None:
        """The parcels: they will be read again, from what was unpacked."""
        self.parcels.clear()
        self.rest = self.mark = None
        self.bytes = self.packs = 0
        if not self.unread:
            self.arrived.clear()

    def take(self, limit: int) -> list[Message]:
        """The first ones of those that are unpacked."""
        unread = self.unread
        taken = [unread.popleft() for _ in range(min(limit, len(unread)))]
        if not unread and not self.parcels:
            self.arrived.clear()
        self.taken = taken[-1].offset + 1
        return taken

    @property
    def full(self) -> bool:
        return self.packs >= LANE_PACKS_MAX or self.bytes >= LANE_BYTES_MAX

    @property
    def roomy(self) -> bool:
        """Half of it is free again: pausing and resuming at the same mark would do so for every pack."""
        return self.packs <= LANE_PACKS_MAX // 2 and self.bytes <= LANE_BYTES_MAX // 2
