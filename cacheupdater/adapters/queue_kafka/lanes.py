"""The packs that were read and wait for their partition: one lane each, between the poller and `fetch`.

The queue makes a lane when it first gains a partition and keeps it for life, for epochs must never repeat; what lies in it
belongs to one epoch and goes with it. A full lane is held back (the consumer pauses the partition) until half of it is taken, so memory
stays bounded whatever the lag. Nothing here awaits, except for whoever waits for the first pack.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.ports import Message

# Per partition. One fetch may come on top, as the broker stores it, decompressed.
LANE_PACKS_MAX = 1024
LANE_BYTES_MAX = 1024 * 1024  # 100 packs of 500 keys: half of what a partition may keep pending


class Lane:
    """One partition's."""

    __slots__ = (
        "arrived",
        "bytes",
        "committed",
        "end",
        "epoch",
        "held",
        "known",
        "next",
        "open",
        "taken",
        "unread",
    )

    def __init__(self) -> None:
        self.unread: deque[Message] = deque()
        self.arrived = asyncio.Event()  # set while there is something to fetch, or nothing ever will be
        self.epoch = self.bytes = 0
        self.next = 0  # the offset that the consumer reads next
        self.taken = 0  # everything before it was fetched by the partition
        self.committed = 0
        self.end = 0  # the highest end of the partition that a broker has told us
        self.known = False  # somebody has read this partition before, so what is gone was lost
        self.open = False  # ours, and commits of this epoch count
        self.held = False  # full: the consumer has paused it

    def begin(self, offset: int, *, known: bool) -> None:
        """A new epoch, from here."""
        self.epoch += 1
        self.known = known
        self.next = self.taken = self.committed = self.end = offset
        self.open = True
        self.held = False

    def over(self) -> None:
        """The epoch has ended: commits do not count any more."""
        self.open = False
        self.quiet()

    def quiet(self) -> None:
        """What has not been fetched is for the next owner."""
        self.unread.clear()
        self.bytes = 0
        self.arrived.clear()

    def put(self, messages: Sequence[Message]) -> None:
        """Packs that the consumer has read, in their order."""
        self.unread.extend(messages)
        self.bytes += sum([len(message.payload) for message in messages])
        self.next = messages[-1].offset + 1
        self.known = True
        self.arrived.set()

    def take(self, limit: int) -> list[Message]:
        """The first ones."""
        unread = self.unread
        if len(unread) <= limit:
            taken = list(unread)
            unread.clear()
            self.bytes = 0
            self.arrived.clear()
        else:
            taken = [unread.popleft() for _ in range(limit)]
            self.bytes -= sum([len(message.payload) for message in taken])
        self.taken = taken[-1].offset + 1
        return taken

    @property
    def full(self) -> bool:
        return len(self.unread) >= LANE_PACKS_MAX or self.bytes >= LANE_BYTES_MAX

    @property
    def roomy(self) -> bool:
        """Half of it is free again: pausing and resuming at the same mark would do so for every pack."""
        return len(self.unread) <= LANE_PACKS_MAX // 2 and self.bytes <= LANE_BYTES_MAX // 2
