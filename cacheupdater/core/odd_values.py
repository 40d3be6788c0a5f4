"""Values of databases that the formats do not know: addresses, ranges, bits, and numbers that are none.

`encoding` hands `told` to its encoders, which ask it only for types that they do not know themselves, and calls
`finite` only for values whose bytes look as if they held NaN or an infinity. So ordinary rows pay two searches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Protocol, runtime_checkable
from uuid import UUID

import msgspec

# What the formats spell by themselves; everything else becomes a mapping, a list or a text
_KEPT = (bytes, bytearray, memoryview, datetime, date, time, timedelta, UUID, Decimal)

_N, _I, _FLOAT = b"NI\xcb"
# The first three bytes of msgpack's 8-byte floats whose exponent is all ones
_MSGPACK_ODD = (b"\xcb\x7f\xf0", b"\xcb\xff\xf0", b"\xcb\x7f\xf8", b"\xcb\xff\xf8")


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


def told(value: object) -> str:
    """As PostgreSQL writes it, its times as RFC 3339; TypeError for what is none of these."""
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


def maybe_odd_json(spelled: bytes) -> bool:
    """Whether the value may hold a decimal that is no finite number; floats of that kind are null by themselves."""
    # one byte is found in a tenth of the time that a word takes
    return (_N in spelled and b"NaN" in spelled) or (_I in spelled and b"Infinity" in spelled)


def maybe_odd_msgpack(spelled: bytes) -> bool:
    """Whether the value may hold a decimal or a float that is no finite number."""
    return maybe_odd_json(spelled) or (_FLOAT in spelled and any(sign in spelled for sign in _MSGPACK_ODD))


def finite(value: object) -> object:
    """The same value with None for every number that is none."""
    return _finite(msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=told))


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(part) for part in value]
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return None if isinstance(value, float) and not math.isfinite(value) else value
