"""One ownership of one partition, and the packs that were read for it and not fetched yet.

`ownership` makes an inbox when the depot has given us the partition, and drops it when the partition is handed over. So what
belongs to an epoch ends with its inbox. A full inbox is not read for until something was fetched, which bounds the memory.
No method waits; `fetch` waits for `arrived`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.ports import Message

INBOX_PACKS_MAX = 256  # unread; one read may exceed it. A partition fetches 4 to 8 at a time, so one read serves many fetches
INBOX_BYTES_MAX = 1024 * 1024  # unread; one read may exceed it
ALL_BYTES_MAX = 64 * 1024 * 1024  # of all inboxes: what one may hold falls as partitions are more
INBOX_BYTES_LEAST = 16 * 1024  # one full pack of 500 keys, whatever the number of partitions


def bytes_max(partitions: int) -> int:
    """How many bytes of unread packs each of so many inboxes may hold."""
    return max(INBOX_BYTES_LEAST, min(INBOX_BYTES_MAX, ALL_BYTES_MAX // max(1, partitions)))


class Inbox:
    """The inbox of one epoch."""

    __slots__ = ("arrived", "bytes", "epoch", "leaving", "next", "open", "taken", "unread")

    def __init__(self, epoch: int, offset: int) -> None:
        self.unread: deque[Message] = deque()
        self.arrived = asyncio.Event()  # set while there is something to fetch, and once the queue is closed
        self.epoch = epoch
        self.bytes = 0
        self.next = offset  # the depot is read from here
        self.taken = offset  # everything before it was fetched by the partition
        self.open = True  # commits of this epoch may count
        self.leaving = False  # the partition is being handed over

    def accepts(self, epoch: int) -> bool:
        """Whether a commit of this epoch may count."""
        return self.open and self.epoch == epoch

    def put(self, messages: Sequence[Message]) -> None:
        """Add what was read at `next`."""
        self.unread.extend(messages)
        self.bytes += sum(len(message.payload) for message in messages)
        self.next = messages[-1].offset + 1
        self.arrived.set()

    def take(self, limit: int) -> list[Message]:
        """The next packs, at most `limit`."""
        unread = self.unread
        taken = [unread.popleft() for _ in range(min(limit, len(unread)))]
        self.bytes -= sum(len(message.payload) for message in taken)
        self.taken = taken[-1].offset + 1
        if not unread:
            self.arrived.clear()
        return taken

    def quiet(self) -> None:
        """Drop everything that has not been fetched: it is for the next owner."""
        self.unread.clear()
        self.bytes = 0
        self.arrived.clear()

    def full(self, most: int) -> bool:
        """Whether it must not be read for. `most` is in bytes."""
        return len(self.unread) >= INBOX_PACKS_MAX or self.bytes >= most
