"""Hints that the collector has taken and not yet handed over to its outbox: one merged batch for all clients.

Every listener of a collector puts its packs in here, as into a queue. Duplicates of all clients become one hint with the sum
of their counts. The forwarder takes changes, and misses whose readers wait, at once. It takes plain misses and touches once in
a turn of 100 ms.

A frame of touches is taken, and may be acknowledged, when it is here. A frame of changes or misses is owed its
acknowledgement until the queue behind the collector has its hints (`core.receipts`), or until the spill has them. Until then
its client keeps the frame, and sends it again to the next collector if this one dies. With a spill, the batches of owed frames
stay here too (`handed`), so that they can still be written to disk while they wait in the outbox.

All that waits is bounded, and each peer leaves room for the others (`core.fair.Room`). A peer for which there is no room
waits, as do its hints in its own outbox, and loses nothing here. Changes and misses have a room of their own, so a flood of
reads takes nothing from them. Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
from itertools import repeat
from typing import TYPE_CHECKING

from cacheupdater.core.fair import Room
from cacheupdater.core.hints import KIND_OF, believable
from cacheupdater.core.peers import NOBODY, Peering
from cacheupdater.core.receipts import Owed, Receipt, Receipts
from cacheupdater.errors import Unavailable
from cacheupdater_client.outbox import BYTES_MAX, KEYS_MAX
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH, Malformed, Pack, decode_pack

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from cacheupdater.ports import Observer
    from cacheupdater_client.outbox import Outbox

# The outbox drops the oldest touches when it is full. It never is: touches get half of it, changes and misses the other half.
TOUCHES_MAX = KEYS_MAX // 2  # keys in the outbox; with more, touches stay here
TOUCHES_BYTES_MAX = BYTES_MAX // 2
URGENT_MAX = KEYS_MAX // 2  # keys of changes and misses, here and in the outbox, each as often as it came
URGENT_BYTES_MAX = BYTES_MAX // 2
READS_MAX = KEYS_MAX // 4  # touched keys here: 250,000 different keys a second, at ten turns a second
READS_BYTES_MAX = BYTES_MAX // 4

KINDS = {"changes": CHANGE, "sets": SET, "awaited": MISS, "misses": MISS, "touches": TOUCH}
"""What waits apart here, and its kind. An awaited miss is one whose reader waits."""

_PARTS = {CHANGE: "changes", SET: "sets", MISS: "misses", TOUCH: "touches"}

_URGENT = ("changes", "sets", "awaited")  # leave at once
_OWED = (*_URGENT, "misses")  # their frames wait for their acknowledgement

_CLOSED = "the collector is closed: this process is shutting down"


class Batch:
    """Merged hints of one kind, and the receipts of the frames that brought them."""

    __slots__ = ("counts", "receipts", "size", "tokens")

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.tokens: dict[bytes, int] = {}
        self.size = 0  # bytes of the keys
        self.receipts: list[Receipt] = []

    def merge(self, pack: Pack) -> tuple[int, int]:
        """Adds the pack's hints. Returns how many keys are new, and their bytes."""
        counts, before, size = self.counts, len(self.counts), 0
        for key, count in zip(pack.keys, pack.counts or repeat(1)):  # noqa: B905  `repeat` has no end
            held = counts.get(key)
            if held is None:
                counts[key] = count
                size += len(key)
            else:
                counts[key] = held + count
        for key, token in zip(pack.keys, pack.tokens, strict=False):
            self.tokens[key] = max(token, self.tokens.get(key, 0))
        self.size += size
        return len(counts) - before, size

    def absorb(self, later: Batch) -> None:
        """Adds hints that have come since."""
        for key, count in later.counts.items():
            self.size += 0 if key in self.counts else len(key)
            self.counts[key] = self.counts.get(key, 0) + count
        for key, token in later.tokens.items():
            self.tokens[key] = max(token, self.tokens.get(key, 0))
        self.receipts += later.receipts


class Gathered(Peering):
    """What the collector has taken from its peers, and from those that have left. A `listener_stream.Inlet`."""

    def __init__(self, observer: Observer, *, spills: bool = False) -> None:
        super().__init__()
        self._observer = observer
        self.spills = spills
        self.handed: list[tuple[str, Batch]] = []  # to the outbox, and owed; only where there is a spill
        self._batches = {part: Batch() for part in KINDS}
        self._reads = Room(READS_MAX, READS_BYTES_MAX)
        self._urgent = Room(URGENT_MAX, URGENT_BYTES_MAX)
        self._receipts = {MISS: Receipts(), SET: Receipts(), CHANGE: Receipts()}
        self._owed: dict[int, Owed] = {}  # by connected peer
        self._room_came = asyncio.Event()
        self._closed = False
        self._kept = False  # frames are done since the last look
        self.hurry = asyncio.Event()  # set while a change waits here, or a reader

    def __bool__(self) -> bool:
        """Whether any hint is here."""
        return any(batch.counts for batch in self._batches.values())

    @property
    def hints(self) -> int:
        """Hints that are here, repeated ones included."""
        return sum(sum(batch.counts.values()) for batch in self._batches.values())

    @property
    def owes(self) -> bool:
        """Whether hints in the outbox have frames that wait for their acknowledgement."""
        return any(self._receipts.values())

    # --- what listeners call --------------------------------------------------------------------------

    def newcomer(self, origin: Hashable = None) -> int:
        """As `Peering`. No frame of the new peer is owed."""
        number = super().newcomer(origin)
        self._owed[number] = Owed()
        return number

    def owed(self, peer: int) -> int:
        """How many of the peer's frames, counted from the last, may not be acknowledged yet."""
        owed = self._owed.get(peer)
        return owed.frames if owed else 0

    def offer(self, partition: int, payload: bytes, peer: int) -> bool:  # noqa: ARG002  the outbox cuts anew
        """Take the pack now, or return False if there is no room. A pack that nobody can read counts as taken."""
        if self._closed:
            return False
        try:
            pack = decode_pack(payload)
        except Malformed as e:
            self._observer.count("intake_rejected", 1, reason=e.reason)
            self._owed[peer].follow()
            return True
        receipt = self.take(pack, peer)
        if receipt is None:
            return False
        if receipt.done:
            self._owed[peer].follow()
        else:
            self._owed[peer].wait_for(receipt)
        return True

    async def put(self, partition: int, payload: bytes, peer: int) -> None:
        """Wait for room. Returns once the pack is taken, or raises Unavailable."""
        while not self.offer(partition, payload, peer):
            if self._closed:
                raise Unavailable(_CLOSED)
            self._room_came.clear()
            await self._room_came.wait()

    def take(self, pack: Pack, peer: int) -> Receipt | None:
        """Take the hints now, or return None if there is no room. The receipt of touches is done at once.

        Counts are made believable here: once they are merged, the updater cannot know any more who has lied. It believes as
        much of the merged counts as of those of all clients.
        """
        clients = self.clients_of(peer)
        pack = pack._replace(counts=list(believable(pack.counts, clients)))
        receipt = Receipt(peer, len(pack.keys), sum(map(len, pack.keys)))
        room = self._reads if pack.kind == TOUCH else self._urgent
        if self._closed or not room.takes(peer, receipt.keys, receipt.size, clients=clients):
            return None
        part = _PARTS[pack.kind]
        if part == "misses" and pack.tokens:
            part = "awaited"
        batch = self._batches[part]
        new = batch.merge(pack)
        if pack.kind == TOUCH:
            room.take(peer, *new)
            receipt.done = True
        else:  # each receipt counts as a whole, for it is given back as a whole
            room.take(peer, receipt.keys, receipt.size)
            batch.receipts.append(receipt)
        if part in _URGENT:
            self.hurry.set()
        hints = sum(pack.counts) if pack.counts else receipt.keys
        self._observer.count("collected", hints, label=KIND_OF[pack.kind].name.lower())
        return receipt

    # --- what the forwarder calls ---------------------------------------------------------------------

    def hand_over(self, outbox: Outbox, *, all_kinds: bool) -> None:
        """Moves changes and awaited misses into the outbox; with `all_kinds` also what leaves once in a turn."""
        self.hurry.clear()
        for part in _OWED if all_kinds else _URGENT:
            self._move(outbox, part)
        if all_kinds:
            self.hand_over_touches(outbox)

    def hand_over_touches(self, outbox: Outbox) -> None:
        """Moves the touches, if the outbox has room for all of them."""
        if self.touches_fit(outbox):
            self._move(outbox, "touches")
            self._reads.clear()
            self._room_came.set()

    def touches_fit(self, outbox: Outbox) -> bool:
        """Whether the outbox has room for the touches that are here."""
        keys, size = outbox.size
        touches = self._batches["touches"]
        return len(touches.counts) <= TOUCHES_MAX - keys and touches.size <= TOUCHES_BYTES_MAX - size

    def _move(self, outbox: Outbox, part: str) -> None:
        batch, kind = self._batches[part], KINDS[part]
        if batch.counts:
            self._batches[part] = Batch()
            outbox.add(kind, batch.counts, batch.tokens.items())
            if kind != TOUCH:
                self._receipts[kind].add(batch.receipts)
                if self.spills:
                    self.handed.append((part, batch))

    def recall(self) -> None:
        """The outbox cuts anew what it had cut."""
        for receipts in self._receipts.values():
            receipts.recall()

    def settle(self, kind: int, keys: int) -> None:
        """So many keys of this kind have left the outbox."""
        if kind != TOUCH:
            self._receipts[kind].settle(keys)

    def look(self, outbox: Outbox) -> bool:
        """Whether more frames may be acknowledged than before."""
        done = [
            each
            for kind, receipts in self._receipts.items()
            if receipts
            for each in receipts.look(*outbox.standing(kind))
        ]
        self._release(done)
        if done and self.handed:
            self.handed = [one for one in self.handed if not all(each.done for each in one[1].receipts)]
        kept, self._kept = self._kept, False
        return bool(done) or kept

    # --- what the spill calls -------------------------------------------------------------------------

    def take_out(self, *, touches: bool) -> list[tuple[str, Batch]]:
        """Takes out what must be written to disk now: changes and misses, and with `touches` these too."""
        self.hurry.clear()
        parts = (*_OWED, "touches") if touches else _OWED
        taken = [(part, self._batches[part]) for part in parts if self._batches[part].counts]
        for part, _ in taken:
            self._batches[part] = Batch()
        if touches:
            self._reads.clear()
        return taken

    def put_back(self, taken: Iterable[tuple[str, Batch]]) -> None:
        """The disk has not taken these batches. Newer hints follow them."""
        for part, batch in taken:
            batch.absorb(self._batches[part])
            self._batches[part] = batch
            if part == "touches":  # nobody's: who brought them is forgotten
                self._reads.clear()
                self._reads.take(NOBODY, len(batch.counts), batch.size)

    def kept(self, taken: Iterable[tuple[str, Batch]]) -> None:
        """These batches lie on disk, and so do all that were handed to the outbox: no frame of theirs must wait."""
        done = [each for _, batch in taken for each in batch.receipts]
        for each in done:
            each.done = True
        for receipts in self._receipts.values():
            done += receipts.take_all()
        self.handed.clear()
        self._kept = True
        self._release(done)
        self._room_came.set()  # for touches

    def _release(self, done: Iterable[Receipt]) -> None:
        for each in done:
            self._urgent.take(each.peer, -each.keys, -each.size)
            self._room_came.set()

    def close(self) -> None:
        """Take nothing more, and end every wait."""
        self._closed = True
        self._room_came.set()
