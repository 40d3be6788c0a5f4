"""How a loaded value becomes what the serializers of cashews and aiocache make of it: `framework:` of a namespace, beside pickles.

The updater asks for an encoder once per namespace, and calls it once per loaded key. Importing `encoding` does not load this
module. In JSON, decimals and times are spelled as `value.numbers` and `value.times` say, for `json.dumps` refuses both: the
application has made text or numbers of them before. What an encoder cannot express is Inexpressible.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from cacheupdater_client.protocol.encoding import VALUE_BYTES_MAX, encoder
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater_client.protocol.spelling import Numbers, Times

_UNREADABLE = (Mapping, list, tuple, set, frozenset, bytes, bytearray, memoryview)


def jsoner(numbers: Numbers, times: Times) -> Callable[[object], bytes]:
    """JSON with the blanks and escapes of Python's own `json.dumps`."""
    encode = encoder("json", numbers, times)

    def dumped(value: object) -> bytes:
        spelled = cast("bytes", encode(value))  # only hashes are mappings
        return _capped(json.dumps(json.loads(spelled)).encode())

    return dumped


def text(value: object) -> bytes:
    """`str()` of the only column, or of the value itself. Of NULL or a list it would be a text that nobody reads back."""
    if isinstance(value, Mapping) and len(value) == 1:
        value = next(iter(value.values()))
    if value is None or isinstance(value, _UNREADABLE):
        raise Inexpressible(
            f"this serializer takes one plain value, got a value of type {type(value).__name__}; use json"
        )
    return _capped(str(value).encode())


def without_bytes(encode: Callable[[object], bytes]) -> Callable[[object], bytes]:
    """`encode`, but for bytes alone: cashews has a mark of its own for them, and takes a pickle of bytes for nothing."""

    def encoded(value: object) -> bytes:
        if isinstance(value, bytes):
            raise Inexpressible("cashews takes pickled bytes for nothing; put them into a list or a dict")
        return encode(value)

    return encoded


def _capped(spelled: bytes) -> bytes:
    if len(spelled) > VALUE_BYTES_MAX:
        raise Inexpressible(
            f"the value takes {len(spelled)} bytes, more than the {VALUE_BYTES_MAX} that one key may hold"
        )
    return spelled
