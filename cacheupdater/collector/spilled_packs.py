"""Between batches and the packs of a segment: `spill` cuts what it writes, `spill` and `replay` decode what they read.

Plain functions and one iterator. A pack on disk has the wire format of a pack, with the time of its spilling. Its keys may
belong to several partitions, for the number of partitions may be another one when they are replayed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cacheupdater.errors import Unavailable
from cacheupdater_client.protocol.wire import (
    PACK_BYTES_MAX,
    PACK_HINTS_MAX,
    Malformed,
    Pack,
    decode_pack,
    encode_pack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cacheupdater.adapters.spill_files import Reader, SpillFiles
    from cacheupdater.collector.gathered import Batch

_KEY_OVERHEAD = 23  # msgpack's head of a key (5), its count (9) and its token (9), at most
_BODY_BYTES = PACK_BYTES_MAX - 64  # without the pack's own head


def packs_of(kind: int, batch: Batch, now_ms: int) -> Iterator[tuple[bytes, int]]:
    """The packs of a batch, each with the number of its hints. Keys with tokens have packs of their own."""
    told = batch.tokens
    yield from _packs(kind, batch, [key for key in batch.counts if key not in told], now_ms)
    yield from _packs(kind, batch, [key for key in batch.counts if key in told], now_ms)


def _packs(kind: int, batch: Batch, keys: Iterable[bytes], now_ms: int) -> Iterator[tuple[bytes, int]]:
    for part in _cut(keys):
        counts = [batch.counts[key] for key in part]
        tokens = [batch.tokens[key] for key in part] if part[0] in batch.tokens else ()
        hints = sum(counts)
        yield (
            encode_pack(kind, now_ms, part, counts if hints > len(part) else (), tokens=tokens),
            hints,
        )


def _cut(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Parts that fit into a pack, by number and by bytes."""
    part: list[bytes] = []
    size = 0
    for key in keys:
        more = len(key) + _KEY_OVERHEAD
        if part and (len(part) == PACK_HINTS_MAX or size + more > _BODY_BYTES):
            yield part
            part, size = [], 0
        part.append(key)
        size += more
    if part:
        yield part


class Packs:
    """The sound packs of one segment, one at a time. Raises Unavailable if the file can be read no further."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._unreadable = 0

    @property
    def damaged(self) -> int:
        """Places where packs are missing so far."""
        return self._reader.damaged + self._unreadable

    def __iter__(self) -> Packs:
        return self

    def __next__(self) -> Pack:
        while True:
            try:
                data = self._reader.next()
            except OSError as e:
                raise Unavailable(f"a segment of the spill cannot be read: {e.strerror or e}") from e
            if data is None:
                raise StopIteration
            try:
                return decode_pack(data)
            except Malformed:  # of a newer version of this program
                self._unreadable += 1

    def close(self) -> None:
        """Read no more."""
        self._reader.close()


@contextmanager
def opened(files: SpillFiles, number: int) -> Iterator[Packs]:
    """The packs of a segment, which are closed at the end. Raises Unavailable."""
    packs = Packs(files.reader(number))
    try:
        yield packs
    finally:
        packs.close()
