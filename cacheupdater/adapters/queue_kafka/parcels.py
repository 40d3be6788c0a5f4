"""What a fetch has brought for a partition, whole and unread: aiokafka moves it, and never looks inside.

aiokafka's consumer would decompress and unpack what comes, without any bound. But it keeps places, pauses and rebalances well, so it
goes on doing that: between its fetcher and its client stands `Sealed`, which puts all batches of a partition into one record of our own.
The consumer hands that out as it would any other, with the offset of the last batch in it; `member` makes a `Parcel` of it,
`unpacking` reads it where it is needed.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from cacheupdater.adapters.queue_kafka.batches import walk

_FETCH = 1  # Kafka's number for it
_HEAD = struct.Struct(">qiibIhiqqqhii")  # a batch of v2
_AFTER_LENGTH = 12
_PACKS_BYTES = 8
_NOBODY = (0, 0, -1, -1, -1)  # times and producer


class Parcel(NamedTuple):
    """Whole batches of one partition, as they are stored."""

    raw: bytes
    end: int  # the offset after them
    packs: int  # so many, as the batches say


def parcel(record: Any) -> Parcel:
    """From what the consumer hands out."""
    return Parcel(record.value, record.offset + 1, int.from_bytes(record.key))


class Sealed:
    """The client as the fetcher sees it."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: int, request: Any, **options: Any) -> Any:
        """Answers of fetches come sealed."""
        answer = await self._client.send(node, request, **options)
        if answer.API_KEY == _FETCH:
            answer.topics = [
                (topic, [(*rest, seal(raw)) for *rest, raw in partitions])
                for topic, partitions in answer.topics
            ]
        return answer


def seal(raw: bytes | None) -> bytes | None:
    """One batch with one record: what was whole of this. What holds no whole batch stays as it is."""
    if not raw:
        return raw
    last, packs = None, 0
    for last in walk(raw):
        packs += last.packs
    return raw if last is None else _batch(raw[: last.stop], last.end - 1, packs)


def _batch(value: bytes, offset: int, packs: int) -> bytes:
    """Without a checksum: it never leaves this process, and those inside are looked at."""
    key = packs.to_bytes(_PACKS_BYTES)
    # no attributes, times and places; no headers
    fields = b"\0\0\0" + _varint(len(key)) + key + _varint(len(value)), b"\0"
    length = len(fields[0]) + len(value) + len(fields[1])
    body = [_varint(length), fields[0], value, fields[1]]
    size = _HEAD.size - _AFTER_LENGTH + sum(map(len, body))
    return b"".join([_HEAD.pack(offset, size, -1, 2, 0, 0, 0, *_NOBODY, 1), *body])


def _varint(number: int) -> bytes:
    """Zigzag, as records count; never negative here."""
    number <<= 1
    said: list[int] = []
    while number > 0x7F:  # seven bits a byte
        said.append(0x80 | (number & 0x7F))
        number >>= 7
    return bytes([*said, number])
