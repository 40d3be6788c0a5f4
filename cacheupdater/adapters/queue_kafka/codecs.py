"""Decompression that is bounded before it happens: a few bytes of a topic may stand for gigabytes.

`batches` asks for the body of one batch; what would be larger than `BODY_BYTES_MAX` is refused after that much at the most, in
whatever codec and however many pieces. Two of them announce a size and are asked for it first, the others fill a buffer of that size, made
once per process, and stop where it ends. aiokafka's own decoders would make room for everything, and in Snappy's frames go round for
ever at a negative length; so they are not used.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

cramjam: ModuleType | None
try:
    import cramjam
except ImportError:  # it comes with the extra; a consumer of plain or gzip batches can do without
    cramjam = None

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

# What a batch may be, decompressed. Clients make batches of 16 KiB to 1 MiB, in which no pack is above 256 KiB.
BODY_BYTES_MAX = 4 * 1024 * 1024
# Pieces of one batch that are compressed apart: gzip's members (a producer writes one), Snappy's blocks (of 32 KiB or more).
# Each costs a call, however little is in it.
MEMBERS_MAX = 16
BLOCKS_MAX = 1024

_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEAD = 16  # the magic and two version numbers
_LENGTH = struct.Struct(">i")
_GZIP = 31  # zlib's word for gzip's frame, with the largest window


class Unreadable(Exception):
    """Nothing can be made of these bytes; `reason` is the word under which they are counted."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def decompress(codec: int, data: memoryview) -> bytes:
    """The body of a batch whose attributes name this codec. Raises Unreadable."""
    try:
        decoder = _DECODERS[codec]
    except KeyError:
        raise Unreadable("codec", f"a codec that nobody knows: {codec}") from None
    try:
        return decoder(data)
    except Unreadable:
        raise
    except Exception as e:  # each library has its own, and all say the same
        raise Unreadable("corrupt", f"{_NAMES[codec]}: {e}") from e


def _gzip(data: memoryview) -> bytes:
    found: list[bytes] = []
    room, rest = BODY_BYTES_MAX, bytes(data)
    for _ in range(MEMBERS_MAX):
        member = zlib.decompressobj(_GZIP)
        found.append(member.decompress(rest, room + 1))
        room -= len(found[-1])
        if room < 0:
            raise _too_large()
        if not member.eof:
            raise Unreadable("corrupt", "gzip: cut off")
        rest = member.unused_data
        if not rest:
            return found[0] if len(found) == 1 else b"".join(found)
    raise Unreadable("corrupt", f"gzip: more than {MEMBERS_MAX} members")


def _snappy(data: memoryview) -> bytes:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, BODY_BYTES_MAX)
    found: list[bytes] = []
    room, at = BODY_BYTES_MAX, _XERIAL_HEAD
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size <= 0 or at + size > len(data) or len(found) == BLOCKS_MAX:
            raise Unreadable("corrupt", "snappy: blocks that cannot be")
        found.append(_snappy_block(data[at : at + size], room))
        room -= len(found[-1])
        at += size
    return b"".join(found)


def _snappy_block(block: memoryview, room: int) -> bytes:
    library, data = _library(), bytes(block)
    if library.snappy.decompress_raw_len(data) > room:  # no more than it announces is ever written
        raise _too_large()
    return bytes(library.snappy.decompress_raw(data))


def _lz4(data: memoryview) -> bytes:
    return _into_scratch(_library().lz4.decompress_into, data)


def _zstd(data: memoryview) -> bytes:
    return _into_scratch(_library().zstd.decompress_into, data)


def _into_scratch(decompress_into: Callable[[bytes, bytearray], int], data: memoryview) -> bytes:
    global _scratch  # noqa: PLW0603  one per process: made anew for each batch it would cost more than small batches do
    if _scratch is None:
        _scratch = bytearray(BODY_BYTES_MAX)
    try:
        size = decompress_into(bytes(data), _scratch)
    except Exception as e:
        if "whole buffer" in str(e):  # that there was no room is told by this text alone
            raise _too_large() from e
        raise
    return bytes(memoryview(_scratch)[:size])


def _library() -> ModuleType:
    if cramjam is None:
        raise Unreadable("codec", "only gzip can be read here: the package cramjam is missing")
    return cramjam


def _too_large() -> Unreadable:
    return Unreadable("too_large", f"more than {BODY_BYTES_MAX >> 20} MiB when it is decompressed")


_scratch: bytearray | None = None
_NAMES = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_DECODERS: Mapping[int, Callable[[memoryview], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
