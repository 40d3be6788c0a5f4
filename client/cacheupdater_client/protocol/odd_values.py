"""Values that the formats do not know: addresses, ranges, bits, pydantic models, and numbers that are none.

`encoding` hands `told` to its encoders, which ask it only for types that they do not know themselves, and calls
`finite` only for values whose bytes look as if they held NaN or an infinity. So ordinary rows pay two or three
searches for a single byte; only rows that have such a byte pay for a closer look.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Protocol, runtime_checkable
from uuid import UUID

import msgspec

# What the formats spell by themselves; everything else becomes a mapping, a list or a text
_KEPT = (bytes, bytearray, memoryview, datetime, date, time, timedelta, UUID, Decimal)

# Bytes without which there is no NaN and no Infinity. As numbers: `int in bytes` takes a tenth of `bytes in bytes`
LETTER_N, LETTER_I = ord("N"), ord("I")
FLOAT = 0xCB  # how msgpack begins a float of 8 bytes, the only ones that msgspec writes
# ... and how one goes on whose exponent is all ones. No text and hardly another float has these bytes
_ODD_PLUS, _ODD_MINUS = 0x7F, 0xFF
_ODD_FLOAT = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


@runtime_checkable
class _Bits(Protocol):
    """PostgreSQL's `bit` and `varbit`, as asyncpg holds them."""

    def to_int(self) -> int: ...
    def as_string(self) -> str: ...
    def __len__(self) -> int: ...


@runtime_checkable
class _Range(Protocol):
    """PostgreSQL's ranges, as its drivers hold them. An end that is open is None."""

    @property
    def isempty(self) -> bool: ...
    @property
    def lower(self) -> object: ...
    @property
    def upper(self) -> object: ...
    @property
    def lower_inc(self) -> bool: ...
    @property
    def upper_inc(self) -> bool: ...


def told(value: object) -> object:
    """As PostgreSQL writes it, its times as RFC 3339; a model by its own `model_dump`. TypeError for what is none of these."""
    dump: Callable[[], object] | None = getattr(value, "model_dump", None)
    if dump is not None:
        return (
            dump()
        )  # times and numbers stay what they are: the format spells them as it spells those of a row
    if isinstance(value, IPv4Address | IPv6Address | IPv4Network | IPv6Network):
        return str(value)
    if isinstance(value, _Range):
        if value.isempty:
            return "empty"
        begin, end = "[" if value.lower_inc else "(", "]" if value.upper_inc else ")"
        return f"{begin}{_bound(value.lower)},{_bound(value.upper)}{end}"
    if isinstance(value, _Bits):
        return f"{value.to_int():0{len(value)}b}" if len(value) else ""
    raise TypeError(type(value).__name__)


def _bound(value: object) -> str:
    """A text keeps its quotes, as it may hold a comma."""
    if value is None:
        return ""
    spelled = msgspec.json.encode(value, enc_hook=told).decode()
    return spelled if isinstance(value, str) else spelled.strip('"')


def maybe_odd(spelled: bytes) -> bool:
    """Whether there may be a number that is none, in JSON or msgpack. Callers look for LETTER_N and its like first."""
    # rpartition searches in a third of the time that `in` takes, which tries a number first and fails
    if LETTER_N in spelled and spelled.rpartition(b"NaN")[1]:
        return True
    if LETTER_I in spelled and spelled.rpartition(b"Infinity")[1]:
        return True
    if FLOAT not in spelled or not (_ODD_PLUS in spelled or _ODD_MINUS in spelled):
        return False
    return _ODD_FLOAT.search(spelled) is not None


def finite(value: object) -> object:
    """The same value with None for every number that is none."""
    return _finite(plain(value))


def plain(value: object) -> object:
    """The same value without dataclasses, Structs and models: mappings and lists of what the formats know."""
    return msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=told)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(part) for part in value]
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return None if isinstance(value, float) and not math.isfinite(value) else value
