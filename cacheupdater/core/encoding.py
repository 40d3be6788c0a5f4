"""How a loaded value becomes the bytes that Redis holds: readable by any client, in any language.

`encoder(kind)` is asked once per namespace and its answer called once per loaded key, by the load stage. A value is
what a loader returned: the columns of a row by name, a list of those (`rows: many`), or anything a Python loader makes.

- `json`: Decimal and UUID are strings, datetime is RFC 3339, bytes are base64, NULL, NaN and infinity are null;
  addresses, ranges and bits are strings (`odd_values`).
- `string`: the only column, or the value itself, as text; bytes stay as they are.
- `hash`: one field per column, each as `string` would spell it, nested values as JSON. What json says as null has no
  field: Redis hashes know none, and an absent field is how they say it.
- `msgpack`: as json, but bytes stay bytes and times with a zone are msgpack's timestamps.
- With `numbers: plain` a Decimal is a number in json and msgpack; with `times: iso` times are as `isoformat()` spells them.
- `raw`: the only column, or the value itself, which must be bytes.

What an encoding cannot express is `Faulty` and names the column and the type, never the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from cacheupdater.core import odd_values
from cacheupdater.core.spelling import Numbers, Times, respeller
from cacheupdater.errors import Faulty

if TYPE_CHECKING:
    from cacheupdater_client.fence import Form

Encoding: TypeAlias = Literal["json", "string", "hash", "msgpack", "raw"]
Encoder: TypeAlias = Callable[[object], bytes | Mapping[bytes, bytes]]

VALUE_BYTES_MAX = 1024 * 1024  # a larger value stalls Redis and every reader; fields count for a hash

_json = msgspec.json.Encoder(enc_hook=odd_values.told)
_msgpack = msgspec.msgpack.Encoder(enc_hook=odd_values.told)
_json_plain = msgspec.json.Encoder(enc_hook=odd_values.told, decimal_format="number")
_msgpack_plain = msgspec.msgpack.Encoder(enc_hook=odd_values.told, decimal_format="number")
# what msgspec raises for a value it cannot take
_FAILURES = (TypeError, ValueError, OverflowError, RecursionError)


_FORMS: dict[Encoding, Form] = {
    "json": "json",
    "string": "string",
    "hash": "hash",
    "msgpack": "msgpack",
    "raw": "string",
}


def form_of(kind: Encoding) -> Form:
    """How the fence recognises values of this encoding."""
    return _FORMS[kind]


def encoder(kind: Encoding, numbers: Numbers = "text", times: Times = "rfc3339") -> Encoder:
    """The function that turns values into what Redis shall hold; it raises Faulty for those it cannot."""
    plain = numbers == "plain" and kind in _PLAIN
    encode = _PLAIN[kind] if plain else _ENCODERS[kind]
    if not plain and times == "rfc3339":
        return encode
    respell = respeller(numbers, times)
    return lambda value: encode(respell(value))


def _by(kind: Encoding, encode: Callable[[object], bytes], maybe_odd: Callable[[bytes], bool]) -> Encoder:
    """The encoder of a format that takes whole rows; one call in Python per value, for a refresh pays each of them."""

    def encoded(value: object) -> bytes:
        try:
            spelled = encode(value)
            if maybe_odd(spelled):
                spelled = encode(odd_values.finite(value))
        except _FAILURES as e:
            raise Faulty(f"encoding {kind} cannot express {_culprit(encode, value)}") from e
        if len(spelled) > VALUE_BYTES_MAX:
            raise _too_large(len(spelled))
        return spelled

    return encoded


def _culprit(encode: Callable[[object], bytes], value: object) -> str:
    """Which column it was: each alone fails as the whole did."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            try:
                encode(part)
            except _FAILURES:
                return f"column {name!r}, of type {type(part).__name__}"
    return f"a value of type {type(value).__name__}"


def _string_value(value: object) -> bytes:
    what, content = _single("string", value)
    text = _text("string", what, content)
    if text is None:
        raise Faulty(f"encoding string cannot express {what}: it is NULL or not a number")
    return _capped(text)


def _raw_value(value: object) -> bytes:
    what, content = _single("raw", value)
    if not isinstance(content, bytes | bytearray | memoryview):
        raise Faulty(f"encoding raw takes bytes; {what} is of type {type(content).__name__}")
    return _capped(bytes(content))


def _hash_value(value: object) -> Mapping[bytes, bytes]:
    if not isinstance(value, Mapping):
        raise Faulty(
            f"encoding hash takes one row of named columns, got a value of type {type(value).__name__}"
        )
    fields = {
        str(name).encode(): text
        for name, part in value.items()
        if (text := _text("hash", f"column {name!r}", part)) is not None
    }
    if not fields:
        raise Faulty("encoding hash got no column that is not NULL; Redis holds no empty hash")
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    if size > VALUE_BYTES_MAX:
        raise _too_large(size)
    return fields


def _single(kind: Encoding, value: object) -> tuple[str, object]:
    """The content of a value of one column, and what to call it in an error."""
    if not isinstance(value, Mapping):
        return "the value", value
    if len(value) != 1:
        names = ", ".join(map(str, value)) or "none"
        raise Faulty(f"encoding {kind} takes one column, got {names}; name it with columns: [...]")
    name, content = next(iter(value.items()))
    return f"column {name!r}", content


def _text(kind: Encoding, what: str, value: object) -> bytes | None:
    """A value in the words of JSON, but without quotes: a text is itself, a time is RFC 3339. None: JSON says null."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        if isinstance(value, str):
            return value.encode()
        spelled = _json.encode(value)
        if odd_values.maybe_odd_json(spelled):
            spelled = _json.encode(odd_values.finite(value))
    except _FAILURES as e:
        raise Faulty(f"encoding {kind} cannot express {what}, of type {type(value).__name__}") from e
    if spelled == b"null":
        return None
    if kind == "string" and spelled[:1] in b"[{":
        raise Faulty(
            f"encoding string takes one plain value; {what} is of type {type(value).__name__}, use json"
        )
    return msgspec.json.decode(spelled, type=str).encode() if spelled[:1] == b'"' else spelled


def _capped(encoded: bytes) -> bytes:
    if len(encoded) > VALUE_BYTES_MAX:
        raise _too_large(len(encoded))
    return encoded


def _too_large(size: int) -> Faulty:
    return Faulty(f"the value takes {size} bytes, more than the {VALUE_BYTES_MAX} that one key may hold")


_ENCODERS: dict[Encoding, Encoder] = {
    "json": _by("json", _json.encode, odd_values.maybe_odd_json),
    "string": _string_value,
    "hash": _hash_value,
    "msgpack": _by("msgpack", _msgpack.encode, odd_values.maybe_odd_msgpack),
    "raw": _raw_value,
}

_PLAIN: Mapping[Encoding, Encoder] = {
    "json": _by("json", _json_plain.encode, odd_values.maybe_odd_json),
    "msgpack": _by("msgpack", _msgpack_plain.encode, odd_values.maybe_odd_msgpack),
}
"""Of encodings that tell numbers from text: those in which a Decimal is a number."""
