"""The fetched batches of a partition, whole and unread: aiokafka passes them on and never looks inside.

aiokafka's consumer would decompress and unpack all that it fetches, without any bound. But it handles offsets, pauses and
rebalances well, so we still use it. Between its fetcher and its client stands `Sealed`, which puts all batches of a partition
into one record of our own. The consumer hands out this record like any other, with the offset of the last record in it.
`member` makes a `Parcel` from the record, and `unpacking` reads the parcel when its packs are needed.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from cacheupdater.adapters.queue_kafka.batches import walk

_FETCH = 1  # Kafka's number of this request
_HEAD = struct.Struct(">qiibIhiqqqhii")  # of a v2 batch
_AFTER_LENGTH = 12
_PACKS_BYTES = 8
_NOBODY = (0, 0, -1, -1, -1)  # times and producer


class Parcel(NamedTuple):
    """Whole batches of one partition, as the broker stores them."""

    raw: bytes
    end: int  # the offset after the last batch
    packs: int  # how many, as the batches say


def parcel(record: Any) -> Parcel:
    """The parcel in a record that the consumer hands out."""
    return Parcel(record.value, record.offset + 1, int.from_bytes(record.key))


class Sealed:
    """Stands in for the client of the fetcher, and seals the answers of fetches."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: int, request: Any, **options: Any) -> Any:
        """Sends the request. If it is a fetch, its answer is sealed."""
        answer = await self._client.send(node, request, **options)
        if answer.API_KEY == _FETCH:
            answer.topics = [
                (topic, [(*rest, seal(raw)) for *rest, raw in partitions])
                for topic, partitions in answer.topics
            ]
        return answer


def seal(raw: bytes | None) -> bytes | None:
    """One batch with one record that holds the whole batches of `raw`. If there is no whole batch, `raw` stays as it is."""
    if not raw:
        return raw
    last, packs = None, 0
    for last in walk(raw):
        packs += last.packs
    return raw if last is None else _batch(raw[: last.stop], last.end - 1, packs)


def _batch(value: bytes, offset: int, packs: int) -> bytes:
    """A batch with one record. It has no checksum, for it never leaves this process; the batches inside keep theirs."""
    key = packs.to_bytes(_PACKS_BYTES)
    # no attributes, times and places; no headers
    fields = b"\0\0\0" + _varint(len(key)) + key + _varint(len(value)), b"\0"
    length = len(fields[0]) + len(value) + len(fields[1])
    body = [_varint(length), fields[0], value, fields[1]]
    size = _HEAD.size - _AFTER_LENGTH + sum(map(len, body))
    return b"".join([_HEAD.pack(offset, size, -1, 2, 0, 0, 0, *_NOBODY, 1), *body])


def _varint(number: int) -> bytes:
    """The number in zigzag encoding, as in records. It is never negative here."""
    number <<= 1
    said: list[int] = []
    while number > 0x7F:  # seven bits a byte
        said.append(0x80 | (number & 0x7F))
        number >>= 7
    return bytes([*said, number])
