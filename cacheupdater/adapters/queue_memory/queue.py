"""The queue of a single machine: packs wait in this process until their hints are finished.

The listeners put packs in; the partitions fetch and commit them. The service makes one `MemoryQueue`, which lives as long as
the process. Each partition has an inbox: its unread packs, and the packs that were fetched and are not finished. A full inbox
makes the listeners wait. This stops the senders, whose own buffers drop hints and count them. Each peer must leave room for
others, and peers take turns, so the packs of a flood wait behind each other. Fetched packs have caps of their own, far wider:
hints of a source that is down stay open for long, and must not keep out hints of other sources. Finished packs are forgotten,
even if older packs are not finished.

Nothing is persisted, so a crash loses everything here: hints are wishes, and the next read repeats them. Only the kind of a
pack is read, to keep changes apart. Everything runs on one event loop; nothing here is thread-safe.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_memory.inbox import Fill, Inbox
from cacheupdater.core.peers import NOBODY, Peering
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Assignment, Gained

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from cacheupdater.ports import Message

INBOX_PACKS_MAX = 4096  # unread; one or two objects per pack: about 1 MiB of bookkeeping if packs are tiny
INBOX_BYTES_MAX = (
    8 * 1024 * 1024
)  # unread; 500,000 hints of 16 bytes: five times what a partition keeps pending
# Packs, fetched and unread together: as many as a partition's cap of pending hints, so that the engine's cap is reached
# first. About 200 bytes of bookkeeping each: 20 MiB per partition at the worst.
INBOX_UNDONE_MAX = 100_000
# Bytes of the same packs. A pack stays while one of its hints is open: 60,000 hints a second of 16 bytes, for half a minute.
INBOX_OPEN_BYTES_MAX = 32 * 1024 * 1024
_CLOSED = "the queue is closed: this process is shutting down"


class MemoryQueue(Peering):
    """`ports.Queue` in one process. Its listeners put packs in by `offer` and `put`."""

    def __init__(
        self,
        partitions: int,
        *,
        packs_max: int = INBOX_PACKS_MAX,
        undone_max: int = INBOX_UNDONE_MAX,
        bytes_max: int = INBOX_BYTES_MAX,
        open_bytes_max: int = INBOX_OPEN_BYTES_MAX,
    ) -> None:
        """Each partition has these caps: on unread packs and their bytes, and on unfinished packs and their bytes."""
        super().__init__()
        self._inboxes = [Inbox() for _ in range(partitions)]
        self._most = Fill(packs_max, bytes_max, undone_max, open_bytes_max)
        # At most one change per partition is under way, so this stays short without a cap of its own.
        self._changes: asyncio.Queue[Assignment | None] = asyncio.Queue()
        self._closed = False

    def watch(self, peer: int, finished: Callable[[bytes], None]) -> None:
        """From now on `finished` is called with each pack of this peer that is finished: the object that was put in."""
        for inbox in self._inboxes:
            inbox.watched[peer] = finished

    def owed(self, peer: int) -> int:  # noqa: ARG002  as every inlet
        """Nothing: a pack that is taken may be acknowledged."""
        return 0

    def offer(self, partition: int, payload: bytes, peer: int = NOBODY) -> bool:
        """Take the pack now, or return False if there is no room, or if an earlier pack of this peer waits in `put`."""
        inbox = self._inboxes[partition]
        if self._closed or not self._fits(inbox, len(payload), peer):
            return False
        if any(peer == other for _, _, other in inbox.putters):
            return False
        self._append(inbox, payload, peer)
        return True

    async def put(self, partition: int, payload: bytes, peer: int = NOBODY) -> None:
        """Wait for room; the packs of one peer keep their order. Returns once the pack is taken, or raises Unavailable."""
        if self.offer(partition, payload, peer):
            return
        if self._closed:
            raise Unavailable(_CLOSED)
        inbox = self._inboxes[partition]
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        inbox.putters.append((taken, payload, peer))
        try:
            await taken
        finally:
            self._admit(inbox)  # a cancelled `put` must not block those behind it

    def backlog(self, partition: int) -> int:
        """How many packs of the partition are not finished."""
        return self._inboxes[partition].total.undone

    async def assignments(self) -> AsyncIterator[Assignment]:
        """All partitions at once, then the changes that `reassign` causes. Each new call begins a new ownership."""
        if not self._closed:
            yield self._gain(range(len(self._inboxes)))
        while not self._closed:
            change = await self._changes.get()
            if change is None:
                return
            yield change

    def reassign(self, partitions: Collection[int]) -> None:
        """Take these partitions from their owner and, once it has settled, give them back under a new epoch."""
        again = tuple(partitions)

        def settled() -> None:
            self._changes.put_nowait(self._gain(again))

        self._changes.put_nowait(Assignment(gained=(), lost=again, settled=settled, back=True))

    async def fetch(self, partition: int, limit: int, held: Collection[int] = ()) -> Sequence[Message]:
        """The next 1 to `limit` packs of peers that are not `held`; waits for the first. Nothing once the queue is closed."""
        inbox = self._inboxes[partition]
        while not self._closed:
            taken = inbox.take(limit, held)
            if taken:
                self._admit(inbox)
                return taken
            inbox.arrived.clear()  # all packs here are of peers that are held
            await (
                inbox.arrived.wait()
            )  # the only await, and nothing is taken before it: cancelling loses none
        return ()

    async def commit(self, partition: int, *, epoch: int, done: int, finished: Sequence[int] = ()) -> None:
        """Forget the packs before `done`, and the `finished` ones. An older epoch or an older `done` changes nothing."""
        inbox = self._inboxes[partition]
        if epoch != inbox.epoch:
            return
        if done > inbox.read_up_to:
            raise ValueError(f"partition {partition}: done {done} is beyond what was fetched")
        inbox.finish(done, finished)
        self._admit(inbox)

    async def close(self) -> None:
        """End every wait. Packs that are still here are lost, as documented for this queue."""
        self._closed = True
        self._changes.put_nowait(None)
        for inbox in self._inboxes:
            inbox.arrived.set()
            while inbox.putters:
                taken, _, _ = inbox.putters.popleft()
                if not taken.done():
                    taken.set_exception(Unavailable(_CLOSED))

    def _fits(self, inbox: Inbox, size: int, peer: int) -> bool:
        if not inbox.total.undone:
            return True  # even a pack larger than the cap, which would otherwise wait for ever
        if not inbox.total.has_room(self._most, size):
            return False
        clients = self.clients_of(peer)
        return peer == NOBODY or inbox.fill(peer).takes(inbox.total, self._most, size=size, clients=clients)

    def _admit(self, inbox: Inbox) -> None:
        """Take every waiting pack that fits by now. The packs of one peer keep their order."""
        waiting: set[int] = set()
        for _ in range(len(inbox.putters)):
            taken, payload, peer = inbox.putters.popleft()
            if taken.done():
                continue  # it was cancelled: its pack is not taken
            if peer in waiting or not self._fits(inbox, len(payload), peer):
                waiting.add(peer)
                inbox.putters.append((taken, payload, peer))
            else:
                taken.set_result(None)
                self._append(inbox, payload, peer)

    def _append(self, inbox: Inbox, payload: bytes, peer: int) -> None:
        inbox.append(payload, peer, clients=self.clients_of(peer))

    def _gain(self, partitions: Sequence[int]) -> Assignment:
        for partition in partitions:
            self._inboxes[partition].rewind()
        gained = tuple(Gained(p, self._inboxes[p].epoch, self._inboxes[p].done) for p in partitions)
        return Assignment(gained=gained, lost=(), settled=_nothing_to_settle)


def _nothing_to_settle() -> None:
    """Gaining needs no hand-over."""
