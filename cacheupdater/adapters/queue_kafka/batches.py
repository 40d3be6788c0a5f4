"""Batches of records as a broker stores them: where each batch lies, and its records, one by one.

`unpacking` reads the records of a parcel with these functions. They check everything that a record says about itself. A length
beyond the batch, a wrong count or an offset out of order ends the reading of that batch. Headers are skipped without making
objects of them, for half a million of them fit into a megabyte. aiokafka reads a whole batch at once, headers included.

Formats: v2 (since Kafka 0.11), and the messages of v0 and v1 that old topics still hold.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zlib import crc32

from aiokafka.record.util import calc_crc32c

from cacheupdater.adapters.queue_kafka.codecs import Unreadable, decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

_FRAME = struct.Struct(">qi")  # base offset; the length of what follows
_MAGIC_AT = 16
_V2 = struct.Struct(">qiibIhiqqqhii")
_V2_CHECKED_AT = 21  # the checksum covers everything from the attributes on
_V2_FIRST = 2
_LAST_AT, _COUNT_AT = 23, 57
_V0, _V1 = struct.Struct(">qiIbb"), struct.Struct(">qiIbbq")
_OLD_CHECKED_AT = _MAGIC_AT
_SIZE = struct.Struct(">i")
_CODEC, _LOG_TIME, _CONTROL = 0x07, 0x08, 0x20
_VARINT_BITS = 63
_MOST_MS = 2**63 - 1


class Torn(Exception):
    """The checksum is wrong: the network or the broker's disk has changed the batch."""


class Batch(NamedTuple):
    """The place of a batch in the fetched bytes, and its offsets."""

    start: int
    stop: int
    base: int
    end: int  # the offset after its last record
    packs: int  # how many, as the batch says


@dataclass(slots=True)
class Mark:
    """How far a batch was read when its reading stopped. The reading continues there when the batch is decompressed again."""

    base: int  # the base offset of the batch
    size: int = 0  # of its body; 0: not known
    read: int = 0  # records that were read
    at: int = 0  # bytes of the body that were read
    last: int = -1  # the offset of the last record


Record: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""Offset, milliseconds, key and value. A plain tuple: a named one would cost more than the rest of a small record."""


def walk(raw: bytes) -> Iterator[Batch]:
    """The whole batches, in their order. Reads only their heads. The last batch of a fetch is often cut off, and comes again."""
    at, size, frame, number = 0, len(raw), _FRAME.unpack_from, _SIZE.unpack_from
    while size - at >= _FRAME.size:
        base, length = frame(raw, at)
        stop = at + _FRAME.size + length
        if length < _V0.size - _FRAME.size or stop > size:
            return
        last, count = 0, 1
        if raw[at + _MAGIC_AT] >= _V2_FIRST:
            if stop - at < _V2.size:
                return
            last, count = number(raw, at + _LAST_AT)[0], number(raw, at + _COUNT_AT)[0]
        yield Batch(at, stop, base, base + last + 1 if last > 0 else base + 1, count if count > 0 else 1)
        at = stop


def records(raw: bytes, batch: Batch, mark: Mark | None = None) -> tuple[Iterator[Record], int]:
    """The batch's records from the mark on, read one by one, and the bytes of memory that they take beside `raw`.

    Raises Torn or Unreadable, now or while the records are read. A batch of control records has none. The mark moves when
    the reading ends; in old formats it stays.
    """
    if raw[batch.start + _MAGIC_AT] < _V2_FIRST:
        return _old_records(raw, batch)
    head = _V2.unpack_from(raw, batch.start)
    data = memoryview(raw)[batch.start : batch.stop]
    if calc_crc32c(data[_V2_CHECKED_AT:]) != head[4]:
        raise Torn
    attributes = head[5]
    if attributes & _CONTROL:
        return iter(()), 0
    mark = mark or Mark(batch.base)
    if attributes & _CODEC:
        body = decompress(attributes & _CODEC, data[_V2.size :])
        return _new_records(body, (0, len(body)), batch, head=head, mark=mark), len(body)
    return _new_records(raw, (batch.start + _V2.size, batch.stop), batch, head=head, mark=mark), 0


def _new_records(
    body: bytes, place: tuple[int, int], batch: Batch, *, head: tuple[int, ...], mark: Mark
) -> Iterator[Record]:
    start, size = place
    first_ms, last_ms, count = head[7], head[8], head[12]
    by_log, read = head[5] & _LOG_TIME, mark.read - 1
    at, last = start + mark.at, max(batch.base - 1, mark.last)
    try:
        for read in range(mark.read, count):  # noqa: B007  the last one is what the mark needs
            # Numbers of one byte, nearly all numbers, are read in place: a call for each would take twice the time.
            length, at = (body[at] >> 1, at + 1) if not body[at] & 0x81 else _varint(body, at)
            stop = at + length
            at += 1  # its attributes mean nothing
            delta_ms, at = (body[at] >> 1, at + 1) if not body[at] & 0x81 else _varint(body, at)
            delta, at = (body[at] >> 1, at + 1) if not body[at] & 0x81 else _varint(body, at)
            key, at = (None, at + 1) if body[at] == 1 else _sized(body, at, stop)
            value, at = (b"", at + 1) if body[at] == 0 else _sized(body, at, stop)
            offset = batch.base + delta
            if not (at <= stop <= size and last < offset < batch.end):
                raise Unreadable("corrupt", "records with impossible sizes or offsets")
            ms = last_ms if by_log else first_ms + delta_ms
            last, at = offset, stop  # skips the headers
            yield offset, ms if -1 <= ms <= _MOST_MS else -1, key, value
    except IndexError:
        raise Unreadable("corrupt", "records that end beyond their batch") from None
    finally:
        mark.read, mark.at, mark.last = read + 1, at - start, last
    if at != size:
        raise Unreadable("corrupt", f"a batch that does not hold its {count} records")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    at += 1
    if byte < 0x80:  # nearly always
        return (byte >> 1) ^ -(byte & 1), at
    number, bits = byte & 0x7F, 7
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << bits
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        bits += 7
        if bits > _VARINT_BITS:
            raise Unreadable("corrupt", "a number that has no end")


def _sized(body: bytes, at: int, stop: int) -> tuple[bytes | None, int]:
    size, at = _varint(body, at)
    if size < 0:
        return None, at
    if at + size > stop:
        raise Unreadable("corrupt", "a key or value that ends beyond its record")
    return body[at : at + size], at + size


# --- v0 and v1 ------------------------------------------------------------------------------------------


def _old_records(raw: bytes, batch: Batch) -> tuple[Iterator[Record], int]:
    if (
        crc32(memoryview(raw)[batch.start + _OLD_CHECKED_AT : batch.stop])
        != _V0.unpack_from(raw, batch.start)[2]
    ):
        raise Torn
    codec, outer = _old(raw, batch)
    if not codec:
        return iter((outer,)), 0
    body = decompress(codec, memoryview(outer[3] or b""))
    return _wrapped(body, outer), len(body)


def _wrapped(body: bytes, outer: Record) -> Iterator[Record]:
    """Messages in a message. In v1 their offsets are relative to the first, and the outer message has the last one's offset."""
    last = None
    for last in walk(body):  # noqa: B007  the last one is what is looked for
        pass
    if last is None or last.stop != len(body):
        raise Unreadable("corrupt", "messages that end beyond their batch")
    moved, before = outer[0] - last.base if body[_MAGIC_AT] else 0, -1
    for each in walk(body):
        codec, (offset, ms, key, value) = _old(body, each)
        offset += moved
        if codec or not before < offset <= outer[0]:
            raise Unreadable("corrupt", "messages in a message with impossible codecs or offsets")
        yield offset, ms, key, value
        before = offset


def _old(raw: bytes, batch: Batch) -> tuple[int, Record]:
    """The codec of a message, and the message itself."""
    try:
        timed = raw[batch.start + _MAGIC_AT] == 1
        head = (_V1 if timed else _V0).unpack_from(raw, batch.start)
        at = batch.start + (_V1 if timed else _V0).size
        key, at = _old_sized(raw, at, batch.stop)
        value, at = _old_sized(raw, at, batch.stop)
    except struct.error:
        raise Unreadable("corrupt", "a message that ends beyond its length") from None
    return head[4] & _CODEC, (batch.base, head[5] if timed else -1, key, value)


def _old_sized(raw: bytes, at: int, stop: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(raw, at)
    at += _SIZE.size
    if size < 0:
        return None, at
    if at + size > stop:
        raise Unreadable("corrupt", "a key or value that ends beyond its message")
    return raw[at : at + size], at + size
