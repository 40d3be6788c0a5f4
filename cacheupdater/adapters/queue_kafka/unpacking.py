"""Unpacks the parcels of an inbox into packs, a few at a time, when the partition fetches them.

The queue makes one. A batch is skipped if nobody can read it, or if it would be larger than `codecs.BODY_BYTES_MAX` when it
is decompressed. A skipped batch is counted, named in the log, and passed on as one empty pack at its last offset. So its
offset is committed, for the next reader could not read the batch either.

The codec bounds the memory of one batch. This module bounds the memory of all batches that are half unpacked. Where they
exceed `OPEN_BYTES_MAX`, the batches that have been open for longest are closed, and continue from the same record at their
next turn. A batch stays open for at least `TURNS` turns, and a batch that finds no room waits for that. Otherwise a dozen
large batches would be decompressed anew for every few packs, and their partitions would stand still. A batch whose checksum
is wrong is read again, for the network may have spoiled it. The third time it is skipped too.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_kafka.batches import Mark, Torn, records, walk
from cacheupdater.adapters.queue_kafka.codecs import Unreadable
from cacheupdater.adapters.queue_kafka.messages import NOTHING, message
from cacheupdater.ports import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.adapters.queue_kafka.batches import Batch
    from cacheupdater.adapters.queue_kafka.inboxes import Inbox
    from cacheupdater.adapters.queue_kafka.parcels import Parcel
    from cacheupdater.ports import Observer, Troubles

OPEN_BYTES_MAX = 32 * 1024 * 1024  # eight of the largest batches
LARGE = 64 * 1024  # bytes from which a batch counts towards OPEN_BYTES_MAX; usual batches take some KiB
TURN_S = 0.004  # seconds of one turn, which can end after a batch, and after each PASSED skipped records
TURNS = 50  # turns for which a batch stays open while others wait; to open the largest takes 2 to 15 ms
IDLE_S = 1.0  # seconds without a turn, after which a batch may be closed: its partition is not read now
TORN_TIMES = 3  # readings of a torn batch; a broken disk does not heal
# What a turn unpacks beyond the wanted packs, until one of the two is reached: the decoder of one batch finds the processor's
# caches as the batch before has left them. Between two turns an engine has filled them with its own.
AHEAD_PACKS = 32
AHEAD_BYTES = 256 * 1024  # at most the largest pack more
PASSED = 1000  # skipped records: a turn must be able to end among them


@dataclass(slots=True)
class _Open:
    """A batch that is half unpacked, and not small."""

    inbox: Inbox
    size: int
    last: float  # when it had its last turn
    turns: int = 0

    def may_go(self, now: float) -> bool:
        """Whether the batch may be closed to make room for others."""
        return self.turns >= TURNS or now - self.last > IDLE_S or self.inbox.rest is None


class _Crowded(Exception):
    """There is no room for this batch just now."""


class Unpacking:
    """The unpacking of one queue."""

    def __init__(self, *, observer: Observer, notices: Troubles) -> None:
        self._observer = observer
        self._notices = notices
        self._open: dict[int, _Open] = {}  # by partition

    def some(self, inbox: Inbox, partition: int, limit: int) -> bool:
        """Unpack at least `limit` packs, for one turn, and some ahead. If the inbox is `crowded` afterwards, its turn comes later.

        False: the first parcel must be read from the broker again.
        """
        ends = perf_counter() + TURN_S
        inbox.crowded = False
        if taken := self._open.get(partition):
            taken.turns, taken.last = taken.turns + 1, ends
        try:
            self._fill(inbox, partition, limit=limit, ends=ends)
        except Torn:
            inbox.forget()
            return False
        except _Crowded:
            inbox.rest, inbox.crowded = None, True
        finally:
            if inbox.rest is None:
                self._open.pop(partition, None)
        return True

    def _fill(self, inbox: Inbox, partition: int, *, limit: int, ends: float) -> None:
        """Unpacks until there are enough packs, or none are left, or the turn is over."""
        most, ahead = max(limit, AHEAD_PACKS), AHEAD_BYTES
        while inbox.parcels and len(inbox.unread) < most:
            if inbox.rest is None:
                inbox.rest = self._unpack(inbox, partition, inbox.parcels[0])
            for found in inbox.rest:
                if found is None:
                    if perf_counter() > ends:
                        return
                    continue
                inbox.unread.append(found)
                inbox.unpacked = found.offset + 1
                ahead -= len(found.payload)
                if ahead <= 0:
                    most = limit
                if len(inbox.unread) >= most:
                    return
            inbox.used_up()

    def _unpack(self, inbox: Inbox, partition: int, parcel: Parcel) -> Iterator[Message | None]:
        """The packs of a parcel; None in between, where a turn may end."""
        for batch in walk(parcel.raw):
            if batch.end > inbox.unpacked:
                yield from self._read(inbox, partition, parcel.raw, batch)
                self._open.pop(partition, None)
            yield None

    def _read(self, inbox: Inbox, partition: int, raw: bytes, batch: Batch) -> Iterator[Message | None]:
        mark = inbox.mark if inbox.mark and inbox.mark.base == batch.base else Mark(batch.base)
        inbox.mark = mark
        try:
            if mark.size:
                self._make_room(inbox, partition, mark.size)
            found, size = records(raw, batch, mark)
            if size >= LARGE and not mark.size:
                mark.size = size
                self._make_room(inbox, partition, size)
            for n, record in enumerate(found):
                if record[0] >= inbox.unpacked:
                    yield message(record)
                elif n % PASSED == 0:
                    yield None
        except Torn:
            times = inbox.torn[1] + 1 if inbox.torn[0] == batch.base else 1
            inbox.torn = (batch.base, times)
            if times < TORN_TIMES:
                raise
            yield from self._pass_over(inbox, partition, batch, Unreadable("torn", "its checksum is wrong"))
        except Unreadable as e:
            yield from self._pass_over(inbox, partition, batch, e)
        else:
            inbox.mark = None
            if inbox.skips:
                inbox.skips = False
                self._notices.over("batch_skipped", str(partition))

    def _make_room(self, inbox: Inbox, partition: int, size: int) -> None:
        """Closes other batches until this one fits. Raises _Crowded if the others have had too few turns to be closed."""
        taken, now = self._open, perf_counter()
        taken.pop(partition, None)
        while taken and size + sum(each.size for each in taken.values()) > OPEN_BYTES_MAX:
            longest = next((each for each in taken if taken[each].may_go(now)), None)
            if longest is None:
                raise _Crowded
            taken.pop(longest).inbox.rest = None  # ends its reading, which sets the mark
        taken[partition] = _Open(inbox, size, now)

    def _pass_over(self, inbox: Inbox, partition: int, batch: Batch, why: Unreadable) -> Iterator[Message]:
        inbox.skips = True
        self._observer.count("skipped_batches", 1, reason=why.reason)
        text = f"a batch of {batch.stop - batch.start} bytes at offset {batch.base} was passed over: {why}"
        self._notices.trouble("batch_skipped", str(partition), text)
        if batch.end > inbox.unpacked:
            yield Message(batch.end - 1, NOTHING)
