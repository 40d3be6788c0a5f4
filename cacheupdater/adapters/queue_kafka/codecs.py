"""Decompression with a bound on the result: a few compressed bytes of a topic may expand to gigabytes.

`batches` calls `decompress` for the body of one batch. A body larger than `BODY_BYTES_MAX` is refused after at most that many
bytes, in any codec and in any number of pieces. gzip stops after that many bytes. Snappy announces its size, which is checked
first. LZ4 and Zstandard fill a buffer of that size, which is made once per process: LZ4 fails where the buffer ends, and
Zstandard is asked for one byte more.
aiokafka's own decoders are not used: they expand everything, and loop for ever on a Snappy frame with a negative length.

Zstandard, which our client writes, has a library of its own: `zstandard` keeps a decompressor from batch to batch. cramjam
makes one for each batch, and took three times as long for a pack.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from typing import TYPE_CHECKING

from cacheupdater_client.protocol.broker import PACKAGES

cramjam: ModuleType | None
try:
    import cramjam
except ImportError:  # it comes with the extra; a consumer of plain or gzip batches does not need it
    cramjam = None
try:
    from zstandard import ZstdDecompressor
except ImportError:  # as above
    _unzstd = None
else:
    _unzstd = ZstdDecompressor()  # for all batches of the process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

# The largest decompressed batch. Clients make batches of 16 KiB to 1 MiB, in which no pack is above 256 KiB.
BODY_BYTES_MAX = 4 * 1024 * 1024
# Separately compressed pieces of one batch: gzip's members (a producer writes one), Snappy's blocks (of 32 KiB or more).
# Each costs a call, even if it holds little.
MEMBERS_MAX = 16
BLOCKS_MAX = 1024

_XERIAL = b"\x82SNAPPY\0"
_XERIAL_HEAD = 16  # the magic and two version numbers
_LENGTH = struct.Struct(">i")
_GZIP = 31  # zlib's word for gzip's frame, with the largest window


class Unreadable(Exception):
    """These bytes cannot be read. `reason` is the label by which they are counted."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def decompress(codec: int, data: memoryview) -> bytes:
    """The body of a batch with this codec in its attributes. Raises Unreadable."""
    try:
        decoder = _DECODERS[codec]
    except KeyError:
        raise Unreadable("codec", f"an unknown codec: {codec}") from None
    try:
        return decoder(data)
    except Unreadable:
        raise
    except Exception as e:  # each library has its own exceptions for the same cause
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
            raise Unreadable("corrupt", "snappy: blocks of impossible sizes")
        found.append(_snappy_block(data[at : at + size], room))
        room -= len(found[-1])
        at += size
    return b"".join(found)


def _snappy_block(block: memoryview, room: int) -> bytes:
    library, data = _library(), bytes(block)
    if (
        library.snappy.decompress_raw_len(data) > room
    ):  # the library never writes more than the block announces
        raise _too_large()
    return bytes(library.snappy.decompress_raw(data))


def _lz4(data: memoryview) -> bytes:
    scratch = _room()
    try:
        size = _library().lz4.decompress_into(bytes(data), scratch)
    except Exception as e:
        if "whole buffer" in str(e):  # only this text says that there was no room
            raise _too_large() from e
        raise
    return bytes(scratch[:size])


def _zstd(data: memoryview) -> bytes:
    """All frames of the batch. A frame that is cut off gives fewer bytes; the batch's number of records then shows the lack."""
    if _unzstd is None:
        raise _missing("zstandard")
    scratch = _room()
    frames = _unzstd.stream_reader(data, read_across_frames=True)
    size = frames.readinto(scratch)
    if size == BODY_BYTES_MAX and frames.read(1):
        raise _too_large()
    return bytes(scratch[:size])


@cache
def _room() -> memoryview:
    """A buffer for the largest body. One per process: a new one for each batch would take longer than a small batch itself."""
    return memoryview(bytearray(BODY_BYTES_MAX))


def _library() -> ModuleType:
    if cramjam is None:
        raise _missing("cramjam")
    return cramjam


def _missing(package: str) -> Unreadable:
    return Unreadable("codec", f"the package {package} is missing: pip install {PACKAGES}")


def _too_large() -> Unreadable:
    return Unreadable("too_large", f"more than {BODY_BYTES_MAX >> 20} MiB when it is decompressed")


_NAMES = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_DECODERS: Mapping[int, Callable[[memoryview], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
