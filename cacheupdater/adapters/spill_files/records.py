"""The bytes of a segment: one record per pack, each with a marker, its length and a checksum.

    marker (8 bytes) | length of the pack (u32) | crc32 of the length and the pack (u32) | pack

`SpillFiles` writes records and reads them back with a `Reader`, one at a time. The marker is random, belongs to one segment,
and is a part of the file's name. With the marker, a reader finds the next record behind a damaged one. No client knows the
marker, so no client can hide a record of its own making in a key. There is no other head: damage costs the records that it hits.
"""

from __future__ import annotations

import struct
from typing import BinaryIO
from zlib import crc32

from cacheupdater_client.protocol.wire import PACK_BYTES_MAX

MARKER_BYTES = 8
_HEAD = struct.Struct(f">{MARKER_BYTES}sII")
_LENGTH = struct.Struct(">I")
_CHUNK_BYTES = 64 * 1024
OVERHEAD = _HEAD.size  # bytes of a record beside its pack


def record(marker: bytes, pack: bytes) -> bytes:
    """The bytes of one record."""
    return _HEAD.pack(marker, len(pack), _check(pack)) + pack


def _check(pack: bytes) -> int:
    return crc32(pack, crc32(_LENGTH.pack(len(pack))))


class Reader:
    """Reads the packs of one segment in their order. It holds one pack at a time, and never the whole segment."""

    def __init__(self, file: BinaryIO, marker: bytes) -> None:
        self._file = file
        self._marker = marker
        self._data = bytearray()
        self._lost = False  # between a damaged record and the next sound one
        self.damaged = 0
        """Places where records are missing. Nobody can know how many, nor what was in them."""

    def next(self) -> bytes | None:
        """The next sound pack; None at the end. Raises OSError."""
        while self._has(1):
            pack = self._sound()
            if pack is not None:
                self._lost = False
                return pack
            if not self._lost:
                self._lost = True
                self.damaged += 1
            self._skip()
        return None

    def close(self) -> None:
        """Read no more."""
        self._file.close()

    def _sound(self) -> bytes | None:
        """Takes the record that begins here; None if none does."""
        if not self._has(_HEAD.size):
            return None
        marker, length, check = _HEAD.unpack_from(self._data)
        end = _HEAD.size + length
        if marker != self._marker or length > PACK_BYTES_MAX or not self._has(end):
            return None
        pack = bytes(memoryview(self._data)[_HEAD.size : end])
        if _check(pack) != check:
            return None
        del self._data[:end]
        return pack

    def _skip(self) -> None:
        """Goes on to the next marker, or to the end."""
        del self._data[:1]
        while (at := self._data.find(self._marker)) < 0:
            del self._data[: max(0, len(self._data) - MARKER_BYTES + 1)]
            if not self._has(len(self._data) + 1):
                self._data.clear()
                return
        del self._data[:at]

    def _has(self, size: int) -> bool:
        """Whether so many bytes are here, after reading them if need be."""
        while len(self._data) < size:
            chunk = self._file.read(_CHUNK_BYTES)
            if not chunk:
                return False
            self._data += chunk
        return True
