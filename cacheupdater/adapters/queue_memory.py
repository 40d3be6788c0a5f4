"""The queue of a single machine: packs wait in this process until their hints are finished.

The listeners put packs in, the partitions fetch and commit them; the service makes one `MemoryQueue` and it
lives as long as the process. Each partition is a lane: unread packs, then packs that were fetched but are not
yet finished. A full lane makes the listeners wait, which stops the senders, whose own buffers drop and count. Fetched
packs have caps of their own, far wider: hints of a source that is down stay open for long, and must not keep out those
of others. What was finished is forgotten, though older packs are not.
A crash forgets everything here: hints are wishes, the next read repeats them.
It neither looks into a pack nor persists one. Everything runs on one event loop; nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

from cacheupdater.errors import Unavailable
from cacheupdater.ports import Assignment, Gained, Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

LANE_PACKS_MAX = 4096  # unread; an object or two per pack: about 1 MiB of bookkeeping when packs are tiny
LANE_BYTES_MAX = (
    8 * 1024 * 1024
)  # unread; 500,000 hints of 16 bytes: five times what a partition keeps pending
# Fetched and unread together: as many as a partition keeps hints pending, so that the engine's own cap binds first.
# About 200 bytes of bookkeeping each: 20 MiB per partition at the worst.
LANE_UNDONE_MAX = 100_000
# Likewise. A pack stays as long as one of its hints is open: the hints of half a minute, 60,000 a second of 16 bytes.
LANE_OPEN_BYTES_MAX = 32 * 1024 * 1024
_CLOSED = "the queue is closed: this process is shutting down"


class _Lane:
    """One partition: packs in offset order, the fetched ones first."""

    __slots__ = (
        "arrived",
        "done",
        "epoch",
        "fetched",
        "next",
        "open_bytes",
        "putters",
        "unread",
        "unread_bytes",
    )

    def __init__(self) -> None:
        self.fetched: dict[int, Message] = {}  # not finished, by offset and in their order
        self.unread: deque[Message] = deque()
        self.putters: deque[tuple[asyncio.Future[None], bytes]] = deque()  # one per waiting listener peer
        self.arrived = asyncio.Event()  # set while there is something to fetch, or nothing ever will be
        self.unread_bytes = self.open_bytes = self.next = self.done = self.epoch = 0

    @property
    def undone(self) -> int:
        """Packs that take memory."""
        return len(self.unread) + len(self.fetched)

    def append(self, payload: bytes) -> None:
        self.unread.append(Message(self.next, payload))
        self.next += 1
        self.unread_bytes += len(payload)
        self.arrived.set()

    def take(self, limit: int) -> list[Message]:
        taken = [self.unread.popleft() for _ in range(min(limit, len(self.unread)))]
        self.fetched.update((message.offset, message) for message in taken)
        self._read(sum(len(message.payload) for message in taken))
        if not self.unread:
            self.arrived.clear()
        return taken

    def finish(self, done: int, beyond: Sequence[int]) -> None:
        if done > self.done:
            self._forget(list(takewhile(done.__gt__, self.fetched)))
            self.done = done
        self._forget(beyond)

    def rewind(self) -> None:
        """A new owner reads again whatever the last one left undone."""
        self.unread.extendleft(reversed(self.fetched.values()))
        self.fetched.clear()
        self._read(-self.open_bytes)
        self.epoch += 1
        if self.unread:
            self.arrived.set()

    def _read(self, size: int) -> None:
        self.unread_bytes -= size
        self.open_bytes += size

    def _forget(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            message = self.fetched.pop(offset, None)
            if message is not None:
                self.open_bytes -= len(message.payload)


class MemoryQueue:
    """`ports.Queue` in one process, and the two ways in for its listeners: `offer` and `put`."""

    def __init__(
        self,
        partitions: int,
        *,
        packs_max: int = LANE_PACKS_MAX,
        undone_max: int = LANE_UNDONE_MAX,
        bytes_max: int = LANE_BYTES_MAX,
        open_bytes_max: int = LANE_OPEN_BYTES_MAX,
    ) -> None:
        """The caps hold for each partition: unread packs and their bytes, packs that are not finished and theirs."""
        self._lanes = [_Lane() for _ in range(partitions)]
        self._packs_max = packs_max
        self._undone_max = undone_max
        self._bytes_max = bytes_max
        self._open_bytes_max = open_bytes_max
        # At most one change per partition is under way, so this stays short without a cap of its own.
        self._changes: asyncio.Queue[Assignment | None] = asyncio.Queue()
        self._closed = False

    def offer(self, partition: int, payload: bytes) -> bool:
        """Take the pack now, or say that there is no room; whoever waits in `put` goes first."""
        lane = self._lanes[partition]
        if lane.putters or self._closed or not self._fits(lane, len(payload)):
            return False
        lane.append(payload)
        return True

    async def put(self, partition: int, payload: bytes) -> None:
        """Wait for room, first come first served. Returns once the pack is taken, or raises Unavailable."""
        if self.offer(partition, payload):
            return
        if self._closed:
            raise Unavailable(_CLOSED)
        lane = self._lanes[partition]
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.putters.append((taken, payload))
        try:
            await taken
        finally:
            self._admit(lane)  # one that was cancelled must not stand in the way of those behind it

    def backlog(self, partition: int) -> int:
        """Packs that are not finished."""
        return self._lanes[partition].undone

    async def assignments(self) -> AsyncIterator[Assignment]:
        """All partitions at once, then whatever `reassign` causes. Asking again is a new ownership."""
        if not self._closed:
            yield self._gain(range(len(self._lanes)))
        while not self._closed:
            change = await self._changes.get()
            if change is None:
                return
            yield change

    def reassign(self, partitions: Sequence[int]) -> None:
        """Take these partitions from their owner and, once it has settled, give them back under a new epoch."""

        def settled() -> None:
            self._changes.put_nowait(self._gain(partitions))

        self._changes.put_nowait(Assignment(gained=(), lost=tuple(partitions), settled=settled))

    async def fetch(self, partition: int, limit: int) -> Sequence[Message]:
        """The next 1 to `limit` packs; waits for the first. Nothing once the queue is closed."""
        lane = self._lanes[partition]
        while not (lane.unread or self._closed):
            await lane.arrived.wait()  # the only await, and nothing is taken before it: cancelling loses none
        if self._closed:
            return ()
        taken = lane.take(limit)
        self._admit(lane)
        return taken

    async def commit(self, partition: int, *, epoch: int, done: int, finished: Sequence[int] = ()) -> None:
        """Forget what is before `done`, and what is `finished`. An older epoch or an older `done` changes nothing."""
        lane = self._lanes[partition]
        if epoch != lane.epoch:
            return
        if done > (lane.unread[0].offset if lane.unread else lane.next):
            raise ValueError(f"partition {partition}: done {done} is beyond what was fetched")
        lane.finish(done, finished)
        self._admit(lane)

    async def close(self) -> None:
        """End every wait. What is still here is lost, as documented for this queue."""
        self._closed = True
        self._changes.put_nowait(None)
        for lane in self._lanes:
            lane.arrived.set()
            while lane.putters:
                taken, _ = lane.putters.popleft()
                if not taken.done():
                    taken.set_exception(Unavailable(_CLOSED))

    def _fits(self, lane: _Lane, size: int) -> bool:
        if not lane.undone:
            return True  # any pack: one larger than the cap would otherwise wait for ever
        if len(lane.unread) >= self._packs_max or lane.undone >= self._undone_max:
            return False
        unread = lane.unread_bytes + size
        return unread <= self._bytes_max and lane.open_bytes + unread <= self._open_bytes_max

    def _admit(self, lane: _Lane) -> None:
        while lane.putters:
            taken, payload = lane.putters[0]
            if not (taken.done() or self._fits(lane, len(payload))):
                return
            lane.putters.popleft()
            if not taken.done():  # else it was cancelled: its pack is not taken
                taken.set_result(None)
                lane.append(payload)

    def _gain(self, partitions: Sequence[int]) -> Assignment:
        for partition in partitions:
            self._lanes[partition].rewind()
        gained = tuple(Gained(p, self._lanes[p].epoch, self._lanes[p].done) for p in partitions)
        return Assignment(gained=gained, lost=(), settled=_nothing_to_settle)


def _nothing_to_settle() -> None:
    """Gaining needs no hand-over."""
