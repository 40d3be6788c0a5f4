"""What dogpile.cache holds in Redis: metadata as JSON, a bar, and the payload, which is a pickle or JSON.

The updater asks `encoder` once per namespace with `framework: {kind: dogpile}`, and calls its answer once per loaded key.
The metadata say when the value was made ("ct"), and dogpile makes a new one when that is longer ago than the region's
`expiration_time`. Here "ct" is 0. The fence's script, which knows when the load began, puts that time in its place, and
compares the payloads alone: another time is no change. So equal rows give equal bytes here. Nothing here reads a pickle.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cacheupdater_client.protocol.encoding import VALUE_BYTES_MAX
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA_MAX = 200  # bytes, as in the fence's scripts; dogpile writes forty
UNDATED = b'{"ct": 0'
"""How a value begins before the script has put in the time of its load."""
_BEFORE = UNDATED + b', "v": 2}|'  # 2: dogpile's `value_version`
_METADATA = re.compile(rb'{"ct": [^|]*}[|]')


def encoder(payload: Callable[[object], bytes]) -> Callable[[object], bytes]:
    """The function that makes whole values without their date; it raises Inexpressible as `payload` does."""

    def encoded(value: object) -> bytes:
        spelled = _BEFORE + payload(value)
        if len(spelled) > VALUE_BYTES_MAX:
            raise Inexpressible(
                f"the value takes {len(spelled)} bytes, more than the {VALUE_BYTES_MAX} that one key may hold"
            )
        return spelled

    return encoded


def payload_of(value: bytes) -> bytes | None:
    """The payload of a value; None if the value is none of dogpile's."""
    metadata = _METADATA.match(value[:METADATA_MAX])
    return value[metadata.end() :] if metadata else None
