"""How a loaded value becomes the bytes that Redis holds: readable by any client, in any language.

`encoder(kind)` is asked once per namespace and its answer called once per loaded key, by the load stage. A value is
what a loader returned: the columns of a row by name, a list of those (`rows: many`), or anything a Python loader makes.

- `json`: Decimal and UUID are strings, datetime is RFC 3339, bytes are base64, NULL, NaN and infinity are null;
  addresses, ranges and bits are strings (`odd_values`).
- `string`: the only column, or the value itself, as text; bytes stay as they are.
- `hash`: one field per column, each as `string` would spell it, nested values as JSON. What json says as null has no
  field: Redis hashes know none, and an absent field is how they say it.
- `msgpack`: as json, but bytes stay bytes and times with a zone are msgpack's timestamps.
- With `numbers: plain` a Decimal is a number in json and msgpack, and spelled as a float elsewhere; with `times: iso` or
  `str` times are as `isoformat()` or `str()` spells them.
- `raw`: the only column, or the value itself, which must be bytes.

What an encoding cannot express is `Inexpressible` and names the column and the type, never the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from cacheupdater_client.protocol import odd_values
from cacheupdater_client.protocol.errors import Inexpressible
from cacheupdater_client.protocol.odd_values import FLOAT, LETTER_I, LETTER_N
from cacheupdater_client.protocol.spelling import Numbers, Times, respeller

if TYPE_CHECKING:
    from cacheupdater_client.protocol.fence import Form

Encoding: TypeAlias = Literal["json", "string", "hash", "msgpack", "raw"]
Encoder: TypeAlias = Callable[[object], bytes | Mapping[bytes, bytes]]

VALUE_BYTES_MAX = 1024 * 1024  # a larger value stalls Redis and every reader; fields count for a hash

_json = msgspec.json.Encoder(enc_hook=odd_values.told)
_msgpack = msgspec.msgpack.Encoder(enc_hook=odd_values.told)
_json_plain = msgspec.json.Encoder(enc_hook=odd_values.told, decimal_format="number")
_msgpack_plain = msgspec.msgpack.Encoder(enc_hook=odd_values.told, decimal_format="number")
_json_text = msgspec.json.Decoder(str)
_BYTES = (bytes, bytearray, memoryview)  # a union would be made anew at each call
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
    """The function that turns values into what Redis shall hold; it raises Inexpressible for those it cannot."""
    if kind == "raw" or (numbers == "text" and times == "rfc3339"):
        return _ENCODERS[kind]
    encode = (_PLAIN if numbers == "plain" else _ENCODERS).get(kind, _ENCODERS[kind])
    respell = respeller(numbers, times, floats=kind not in _PLAIN)
    return lambda value: encode(respell(value))


def _by(kind: Encoding, encode: Callable[[object], bytes], *, floats: bool = False) -> Encoder:
    """The encoder of a format that takes whole rows; one call in Python per value, for a refresh pays each of them.

    `floats`: the format spells even floats that are none. JSON says null by itself.
    """

    def encoded(value: object) -> bytes:
        try:
            spelled = encode(value)
            # a usual row has none of these bytes, and a call would cost more than these looks
            odd = LETTER_N in spelled or LETTER_I in spelled or (floats and FLOAT in spelled)
            if odd and odd_values.maybe_odd(spelled):
                spelled = encode(odd_values.finite(value))
        except _FAILURES as e:
            raise Inexpressible(f"encoding {kind} cannot express {_culprit(encode, value)}") from e
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
    content = _content("string", value)
    try:
        text = _text(content)
    except _FAILURES as e:
        raise _inexpressible("string", _what(value), content) from e
    if text is None:
        raise Inexpressible(f"encoding string cannot express {_what(value)}: it is NULL or not a number")
    if text[:1] in (b"[", b"{") and _is_nested(content):
        raise Inexpressible(
            f"encoding string takes one plain value; {_what(value)} is of type {type(content).__name__}, use json"
        )
    return _capped(text)


def _raw_value(value: object) -> bytes:
    content = _content("raw", value)
    if not isinstance(content, _BYTES):
        raise Inexpressible(f"encoding raw takes bytes; {_what(value)} is of type {type(content).__name__}")
    return _capped(bytes(content))


def _hash_value(value: object) -> Mapping[bytes, bytes]:
    if not isinstance(value, Mapping):
        raise Inexpressible(
            f"encoding hash takes one row of named columns, got a value of type {type(value).__name__}"
        )
    fields = {}
    for name, part in value.items():
        try:
            text = _text(part)
        except _FAILURES as e:
            raise _inexpressible("hash", f"column {name!r}", part) from e
        if text is not None:
            fields[str(name).encode()] = text
    if not fields:
        raise Inexpressible("encoding hash got no column that is not NULL; Redis holds no empty hash")
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    if size > VALUE_BYTES_MAX:
        raise _too_large(size)
    return fields


def _content(kind: Encoding, value: object) -> object:
    """The content of a value of one column."""
    if not isinstance(value, Mapping):
        return value
    if len(value) != 1:
        names = ", ".join(map(str, value)) or "none"
        raise Inexpressible(f"encoding {kind} takes one column, got {names}; name it with columns: [...]")
    return next(iter(value.values()))


def _what(value: object) -> str:
    """What to call a value of one column in an error."""
    return f"column {next(iter(value))!r}" if isinstance(value, Mapping) else "the value"


def _text(value: object) -> bytes | None:
    """A value in the words of JSON, but without quotes: a text is itself, a time is RFC 3339. None: JSON says null."""
    if isinstance(value, str):
        return value.encode()
    if value is None:
        return None
    if isinstance(value, _BYTES):
        return bytes(value)
    spelled = _json.encode(value)
    if (LETTER_N in spelled or LETTER_I in spelled) and odd_values.maybe_odd(spelled):
        spelled = _json.encode(odd_values.finite(value))
    if spelled == b"null":
        return None
    return _json_text.decode(spelled).encode() if spelled[:1] == b'"' else spelled


def _is_nested(value: object) -> bool:
    """Whether JSON says it as a list or an object, and not as a text that looks like one: a range, say."""
    return not isinstance(value, (str, *_BYTES)) and _json.encode(value)[:1] != b'"'


def _inexpressible(kind: Encoding, what: str, value: object) -> Inexpressible:
    return Inexpressible(f"encoding {kind} cannot express {what}, of type {type(value).__name__}")


def _capped(encoded: bytes) -> bytes:
    if len(encoded) > VALUE_BYTES_MAX:
        raise _too_large(len(encoded))
    return encoded


def _too_large(size: int) -> Inexpressible:
    return Inexpressible(
        f"the value takes {size} bytes, more than the {VALUE_BYTES_MAX} that one key may hold"
    )


_ENCODERS: dict[Encoding, Encoder] = {
    "json": _by("json", _json.encode),
    "string": _string_value,
    "hash": _hash_value,
    "msgpack": _by("msgpack", _msgpack.encode, floats=True),
    "raw": _raw_value,
}

_PLAIN: Mapping[Encoding, Encoder] = {
    "json": _by("json", _json_plain.encode),
    "msgpack": _by("msgpack", _msgpack_plain.encode, floats=True),
}
"""Of encodings that tell numbers from text: those in which a Decimal is a number."""
