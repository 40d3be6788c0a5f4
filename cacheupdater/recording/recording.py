"""The file that `cacheupdater record` writes and `cacheupdater plan` reads: a minute of reads, and a sample of changes.

No key is in it, only how many keys were read how often, so it may leave the machine. The file is a line with its name and
version, a checksum, then msgpack. Anything else is refused.
"""

from __future__ import annotations

import zlib
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cacheupdater.errors import Misconfigured

VERSION = 1
BYTES_MAX = 64 * 1024 * 1024  # a recording of a million keys has far less than one

_NAME = b"cacheupdater recording "
_HEAD = _NAME + b"%d\n" % VERSION
_SUM_BYTES = 4

_Count = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, Meta(ge=0, le=1e12)]
_Amount = Annotated[float, Meta(gt=0, le=1e12)]


class Watched(Struct, frozen=True, array_like=True):
    """One sampled key."""

    reads: _Count  # in the whole recording
    changes: Annotated[float, Meta(ge=0, le=1e12)]  # within the exposure
    exposure: _Seconds
    exact: bool  # exactly so many changes; else one means one or more


class Space(Struct, frozen=True):
    """One namespace."""

    name: str
    source: str
    worth: _Amount
    max_age: _Amount | None
    keys: dict[_Count, _Count]  # how many keys were read so often
    announced: _Number  # changes that the application told of
    milliseconds: _Amount | None  # of database time per row, as the sample took it
    sample: list[Watched]
    least_gain: Annotated[float, Meta(ge=0, le=1e12)] = (
        0.0  # of its source: stale reads that a row must prevent
    )


class Recording(Struct, frozen=True):
    """All that a file holds."""

    seconds: _Amount
    spaces: list[Space]
    dropped: _Number  # keys that there was no room for


def encode(recording: Recording) -> bytes:
    body = msgspec.msgpack.encode(recording)
    return _HEAD + zlib.crc32(body).to_bytes(_SUM_BYTES, "big") + body


def decode(content: bytes) -> Recording:
    """The recording, or Misconfigured, which says what is wrong with the file."""
    if not content.startswith(_NAME):
        raise Misconfigured("is no recording; `cacheupdater record` makes one")
    if not content.startswith(_HEAD):
        raise Misconfigured("is a recording of another version of cacheupdater; record again")
    at = len(_HEAD) + _SUM_BYTES
    total, body = content[len(_HEAD) : at], content[at:]
    if zlib.crc32(body).to_bytes(_SUM_BYTES, "big") != total:
        raise Misconfigured("is damaged: its checksum is wrong; copy it again, or record again")
    try:
        return msgspec.msgpack.decode(body, type=Recording)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError) as e:
        # besides its own errors, what msgspec raises for text that is no UTF-8 and for keys that do not hash
        raise Misconfigured(f"is damaged: {e}; record again") from e
