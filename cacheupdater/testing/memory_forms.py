"""The rule of the fence's scripts for foreign values, in Python. `MemoryRedis` uses it; tests compare both with the scripts.

Beside the floor of a load, a few bytes of a value decide whether it reads in a form; without one, the whole value does.
Nothing here knows keys, tokens or time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from cacheupdater.core import kinds
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.dogpile import UNDATED, payload_of
from cacheupdater_client.protocol.pickles import is_of_cachelib, is_pickle, is_pickle_or_integer

_CLOSES = {b"{": b"}", b"[": b"]", b'"': b'"'}
_SCALAR = re.compile(rb"\s*-?(\d[\d.eE+-]*|true|false|null|NaN|Infinity)\s*")
_SCALAR_MAX = 1000  # bytes, as in the scripts
_SPACES = b" \t\r\n"
# The length of a msgpack value that contains no others, by its first byte.
_FIXED = {
    192: 1,
    194: 1,
    195: 1,
    202: 5,
    203: 9,
    204: 2,
    205: 3,
    206: 5,
    207: 9,
    208: 2,
    209: 3,
    210: 5,
    211: 9,
}


class Other(NamedTuple):
    """A value of a type that is never written through the fence: a list, a set, a stream."""

    name: str = "list"


Held: TypeAlias = bytes | Mapping[bytes, bytes] | Other


def is_foreign(held: Held | None, form: fence.Form, floor: int | None) -> bool:
    """Whether a value reads neither in this form nor in that of the load that wrote its floor."""
    wrote = None if floor is None else fence.form_of(floor)
    if held is None:
        return False
    if isinstance(held, Mapping):
        return form not in {"hash", "type"} and wrote != "hash"
    if isinstance(held, Other):
        return True
    if wrote is None:
        return not _reads(_WHOLES, form, held)
    return not (_reads(_SHAPES, form, held) or _reads(_SHAPES, wrote, held))


def is_ours(floor: int | None) -> bool:
    """Whether a load of ours wrote the value beside this floor, or a change has left the value in its place."""
    return floor is not None and (fence.is_of_load(floor) or floor % 1000 == fence.OUTDATED_FORM)


def says_nothing(held: Held | None, form: fence.Form, floor: int | None) -> bool:
    """Whether a value that is not ours says by itself that there is no row. No string says so, for a row may hold an empty text."""
    if not isinstance(held, bytes) or form not in _WHOLES or is_ours(floor):
        return False
    return kinds.says_nothing(form, held)


def dated(value: bytes, token: int) -> bytes:
    """A value of dogpile with the time of the load that has this token."""
    seconds, rest = divmod(token // 1000, 1_000_000)
    return b'{"ct": %d.%06d' % (seconds, rest) + value.removeprefix(UNDATED)


_Tests: TypeAlias = Mapping[fence.Form, Callable[[bytes], bool]]


def _reads(tests: _Tests, form: fence.Form, value: bytes) -> bool:
    return form != "hash" and (form not in tests or tests[form](value))


def _json_shape(value: bytes) -> bool:
    closes = _CLOSES.get(value.lstrip(_SPACES)[:1])
    if closes:
        return value[-1:] == closes or value[-1] <= 32
    return len(value) <= _SCALAR_MAX and _SCALAR.fullmatch(value) is not None


def _json_whole(value: bytes) -> bool:
    return _json_shape(value) and _decodes(msgspec.json.decode, value)


def _msgpack_shape(value: bytes) -> bool:
    """An item that contains no others must end where the value ends: so a pickle, which begins like an empty map, fails."""
    first = value[0] if value else 193
    if first in {0x80, 0x90} or first < 0x80 or first >= 0xE0:
        return len(value) == 1
    if first in _FIXED:
        return len(value) == _FIXED[first]
    return _msgpack_whole(value)


def _msgpack_whole(value: bytes) -> bool:
    return _decodes(msgspec.msgpack.decode, value)


def _decodes(decode: Callable[[bytes], object], value: bytes) -> bool:
    try:
        decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _of_dogpile(test: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    def tested(value: bytes) -> bool:
        payload = payload_of(value)
        return payload is not None and test(payload)

    return tested


_PICKLES: _Tests = {
    "pickle": is_pickle_or_integer,
    "cachelib": is_of_cachelib,
    "dogpile": _of_dogpile(is_pickle),
}
_SHAPES: _Tests = {
    **_PICKLES,
    "json": _json_shape,
    "msgpack": _msgpack_shape,
    "dogpile-json": _of_dogpile(_json_shape),
}
_WHOLES: _Tests = {
    **_PICKLES,
    "json": _json_whole,
    "msgpack": _msgpack_whole,
    "dogpile-json": _of_dogpile(_json_whole),
}
