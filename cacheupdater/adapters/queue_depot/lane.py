"""One lane of an inbox: the packs that were read from the depot and not fetched yet, and those that were fetched and not finished.

An inbox has one, or two if the depot has lanes. The lane knows the offsets of the depot, and those that the queue has given to its
packs. No method waits, and nothing is sent from here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cacheupdater.core.peers import NOBODY
from cacheupdater.depot_ports import Progress
from cacheupdater.ports import Message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

PACKS_MAX = 256  # unread; one read may exceed it. A partition fetches 4 to 8 at a time, so one read serves many fetches


class InboxLane:
    """One lane of one epoch."""

    __slots__ = ("_committed", "_open", "_takes_back", "bytes", "next", "taken", "unread")

    def __init__(self, offset: int, *, takes_back: bool = False) -> None:
        """`takes_back`: packs may have been put back here, at the depot's offset."""
        self._takes_back = takes_back
        self.unread: deque[Message] = deque()
        self.bytes = 0
        self.next = offset  # the depot is read from here
        self.taken = offset  # everything before it was fetched by the partition
        self._committed = (offset, offset)  # `scan` and `done` as the depot knows them
        # Of what was fetched and not committed: the depot's offset, by ours. Not more than the depot's `length` may wait there
        self._open: dict[int, int] = {}

    def put(self, messages: Sequence[Message]) -> None:
        """Add what was read at `next`."""
        self.unread.extend(messages)
        self.bytes += sum([len(message.payload) for message in messages])
        self.next = messages[-1].offset + 1

    def take(self, limit: int, *, ahead: int) -> list[Message]:
        """The next packs, at most `limit`. Their offsets on the queue count the packs of another lane that lie `ahead` of them."""
        unread = self.unread
        taken = [unread.popleft() for _ in range(min(limit, len(unread)))]
        if not taken:
            return taken
        self.bytes -= sum([len(each.payload) for each in taken])
        self.taken = taken[-1].offset + 1
        self._open.update([(each.offset + ahead, each.offset) for each in taken])
        if not ahead and not self._takes_back:
            return taken
        return [
            Message(at + ahead, payload, NOBODY, at if self._takes_back else 0) for at, payload, *_ in taken
        ]

    def quiet(self) -> None:
        """Drop everything that has not been fetched."""
        self.unread.clear()
        self.bytes = 0

    def full(self, most: int) -> bool:
        """Whether it must not be read for. `most` is in bytes."""
        return len(self.unread) >= PACKS_MAX or self.bytes >= most

    def progress(self, epoch: int, done: int, finished: Collection[int]) -> Progress | None:
        """What a commit on the queue says of this lane; None if it says nothing new.

        `done` of the lane passes what was finished out of order too, for a pack of another lane holds up nothing here.
        """
        said = set(finished)
        reached = next(
            (at for ours, at in self._open.items() if ours >= done and ours not in said), self.taken
        )
        gone = [at for ours in finished if (at := self._open.get(ours, 0)) > reached]
        if not gone and (self.taken, reached) == self._committed:
            return None
        return Progress(epoch, self.taken, reached, gone)

    def committed(self, progress: Progress, done: int, finished: Collection[int]) -> None:
        """The depot has taken this progress."""
        self._committed = (progress.scan, progress.done)
        passed = []
        for ours in self._open:
            if ours >= done:
                break
            passed.append(ours)
        for ours in (*passed, *finished):
            self._open.pop(ours, None)
