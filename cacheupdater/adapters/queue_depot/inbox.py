"""One ownership of one partition, and the packs that were read for it and not fetched yet.

`ownership` makes an inbox when the depot has given us the partition, and drops it when the partition is handed over. So what
belongs to an epoch ends with its inbox. A full lane is not read for until something was fetched, which bounds the memory.
No method waits; `fetch` waits for `arrived`.

The engine knows one order of packs, in which they are fetched, and the inbox gives each pack its offset in this order: one more
than the packs of both lanes that lie before it. Urgent packs come first, and touches fill what is left of a fetch. So a change
waits for no backlog of touches. Touches wait while urgent packs alone are more than the updater can take: a touch only keeps a
value fresh, and a change or a miss is a value that is wrong or absent. `cacheupdater queue lag` shows which of them wait. The
offset of a depot without lanes is the engine's own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_depot.lane import InboxLane
from cacheupdater.core.lanes import FIRST, urgent_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Claimed, Progress
    from cacheupdater.ports import Message

BYTES_MAX = 1024 * 1024  # unread in a lane; one read may exceed it
ALL_BYTES_MAX = 64 * 1024 * 1024  # of all inboxes: what a lane may hold falls as lanes are more
BYTES_LEAST = 16 * 1024  # one full pack of 500 keys, whatever the number of lanes


def bytes_max(lanes: int) -> int:
    """How many bytes of unread packs each of so many lanes may hold."""
    return max(BYTES_LEAST, min(BYTES_MAX, ALL_BYTES_MAX // max(1, lanes)))


class Inbox:
    """The inbox of one epoch."""

    __slots__ = ("_touches", "_urgent", "arrived", "epoch", "lanes", "leaving", "open")

    def __init__(self, claimed: Claimed) -> None:
        partition, self.epoch, offset, urgent = claimed
        self._touches = InboxLane(offset)  # all packs, if the depot has no lanes
        self._urgent = InboxLane(FIRST if urgent is None else urgent, takes_back=True)
        self.lanes: Mapping[Lane, InboxLane] = {partition: self._touches}
        if urgent is not None:
            self.lanes = {urgent_of(partition): self._urgent, partition: self._touches}
        self.arrived = asyncio.Event()  # set while there is something to fetch, and once the queue is closed
        self.open = True  # commits of this epoch may count
        self.leaving = False  # the partition is being handed over

    @property
    def taken(self) -> int:
        """Everything before this offset was fetched by the partition."""
        return self._touches.taken + self._urgent.taken - FIRST

    @property
    def unread(self) -> int:
        """Packs that may be fetched at once."""
        return len(self._urgent.unread) + len(self._touches.unread)

    def accepts(self, epoch: int) -> bool:
        """Whether a commit of this epoch may count."""
        return self.open and self.epoch == epoch

    def put(self, lane: Lane, messages: Sequence[Message]) -> None:
        """Add what was read of this lane."""
        self.lanes[lane].put(messages)
        self.arrived.set()

    def take(self, limit: int) -> list[Message]:
        """The next packs, at most `limit`."""
        urgent, touches = self._urgent, self._touches
        taken = urgent.take(limit, ahead=touches.taken - FIRST)
        taken += touches.take(limit - len(taken), ahead=urgent.taken - FIRST)
        if not self.unread:
            self.arrived.clear()
        return taken

    def quiet(self) -> None:
        """Drop everything that has not been fetched: it is for the next owner."""
        for each in self.lanes.values():
            each.quiet()
        self.arrived.clear()

    def progress(self, done: int, finished: Collection[int]) -> dict[Lane, Progress]:
        """What a commit says of our lanes, as far as it says something new."""
        said = {lane: each.progress(self.epoch, done, finished) for lane, each in self.lanes.items()}
        return {lane: each for lane, each in said.items() if each is not None}

    def committed(self, progress: Mapping[Lane, Progress], done: int, finished: Collection[int]) -> None:
        """The depot has taken this progress."""
        for lane, each in progress.items():
            self.lanes[lane].committed(each, done, finished)
