"""From the parcels of a lane to packs, a few at a time, when its partition asks for them.

The queue makes one. A batch that nobody can read, or that would be larger than `codecs.BODY_BYTES_MAX` when it is decompressed, is passed
over: counted, told, and given on as one empty pack at its last offset, so that it is committed as if it had been read. Whoever
comes next would fare no better with it.

What one batch takes is bounded by its codec; here all that are half unpacked are: where they come to more than `OPEN_BYTES_MAX`, the largest
of another partition is closed, and decompressed again when its turn comes. A batch whose checksum is wrong is read again, for it may
have been the way; the third time it is passed over too.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_kafka.batches import Torn, records, walk
from cacheupdater.adapters.queue_kafka.codecs import Unreadable
from cacheupdater.adapters.queue_kafka.messages import NOTHING, message
from cacheupdater.ports import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.adapters.queue_kafka.batches import Batch
    from cacheupdater.adapters.queue_kafka.lanes import Lane
    from cacheupdater.adapters.queue_kafka.parcels import Parcel
    from cacheupdater.ports import Observer, Troubles

OPEN_BYTES_MAX = 32 * 1024 * 1024  # eight of the largest batches
LARGE = 64 * 1024  # bytes from which a batch is counted in it; usual ones take some KiB
TURN_S = 0.004  # seconds at a time, and a batch: what is passed over, or was unpacked before, is not endless
TORN_TIMES = 3  # readings; a disk does not heal
PASSED = 1000  # records that are passed without a word: a turn may end among them


class Unpacking:
    """One queue's."""

    def __init__(self, *, observer: Observer, notices: Troubles) -> None:
        self._observer = observer
        self._notices = notices
        self._open: dict[int, tuple[Lane, int]] = {}  # by partition, what its batch takes

    def some(self, lane: Lane, partition: int, limit: int) -> bool:
        """Unpack up to so many, for a turn. False: the first parcel must be read from the broker again."""
        ends = perf_counter() + TURN_S
        try:
            while lane.parcels and len(lane.unread) < limit:
                if lane.rest is None:
                    lane.rest = self._unpack(lane, partition, lane.parcels[0])
                for found in lane.rest:
                    if found is None:
                        if perf_counter() > ends:
                            return True
                    else:
                        lane.unread.append(found)
                        lane.unpacked = found.offset + 1
                        if len(lane.unread) >= limit:
                            return True
                lane.used_up()
        except Torn:
            lane.forget()
            return False
        finally:
            if lane.rest is None:
                self._open.pop(partition, None)
        return True

    def _unpack(self, lane: Lane, partition: int, parcel: Parcel) -> Iterator[Message | None]:
        """None where a while has passed and there is nothing to give."""
        for batch in walk(parcel.raw):
            if batch.end > lane.unpacked:
                yield from self._read(lane, partition, parcel.raw, batch)
                self._open.pop(partition, None)
            yield None

    def _read(self, lane: Lane, partition: int, raw: bytes, batch: Batch) -> Iterator[Message | None]:
        try:
            found, size = records(raw, batch)
            if size >= LARGE:
                self._make_room(lane, partition, size)
            for n, record in enumerate(found):
                if record[0] >= lane.unpacked:
                    yield message(record)
                elif n % PASSED == 0:
                    yield None
        except Torn:
            times = lane.torn[1] + 1 if lane.torn[0] == batch.base else 1
            lane.torn = (batch.base, times)
            if times < TORN_TIMES:
                raise
            yield from self._pass_over(lane, partition, batch, Unreadable("torn", "its checksum is wrong"))
        except Unreadable as e:
            yield from self._pass_over(lane, partition, batch, e)
        else:
            if lane.skips:
                lane.skips = False
                self._notices.over("batch_skipped", str(partition))

    def _make_room(self, lane: Lane, partition: int, size: int) -> None:
        taken = self._open
        taken.pop(partition, None)
        while taken and size + sum(each for _, each in taken.values()) > OPEN_BYTES_MAX:
            largest = max(taken, key=lambda each: taken[each][1])
            other, _ = taken.pop(largest)
            other.rest = None
        taken[partition] = (lane, size)

    def _pass_over(self, lane: Lane, partition: int, batch: Batch, why: Unreadable) -> Iterator[Message]:
        lane.skips = True
        self._observer.count("skipped_batches", 1, reason=why.reason)
        text = f"a batch of {batch.stop - batch.start} bytes at offset {batch.base} was passed over: {why}"
        self._notices.trouble("batch_skipped", str(partition), text)
        if batch.end > lane.unpacked:
            yield Message(batch.end - 1, NOTHING)
