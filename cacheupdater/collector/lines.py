"""Hints as JSON lines, for programs in any language: `{"key": "product:7", "kind": "touch", "count": 3}`.

The HTTP listener reads the body of a request with `packs_of`. Plain bytes in, packs out. A body with a bad line is refused as a
whole, so that its sender corrects it and sends it again, and no hint of it counts twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from cacheupdater_client.protocol.wire import CHANGE, KEY_BYTES_MAX, MISS, PACK_HINTS_MAX, TOUCH, Pack

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT_MAX = 1_000_000  # of one line; a larger count is a mistake
_KINDS = {"touch": TOUCH, "miss": MISS, "change": CHANGE}


class _Line(msgspec.Struct):
    """One hint. Other fields are ignored, as the wire format ignores further elements."""

    key: Annotated[str, msgspec.Meta(min_length=1)]
    kind: Literal["touch", "miss", "change"]
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 1


_decode = msgspec.json.Decoder(_Line).decode


class BadLine(ValueError):
    """A line is no hint. Lines count from 1, empty ones included."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


def packs_of(body: bytes) -> tuple[int, list[Pack]]:
    """How many lines have a hint, and the hints: changes before misses before touches. Raises BadLine for the first bad line."""
    counts: dict[int, Counter[bytes]] = {CHANGE: Counter(), MISS: Counter(), TOUCH: Counter()}
    lines = 0
    for number, line in enumerate(body.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            hint = _decode(line)
            key = hint.key.encode()
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:  # UnicodeError: half a surrogate pair
            raise BadLine(number, str(e)) from e
        if len(key) > KEY_BYTES_MAX:
            raise BadLine(number, f"the key has more than {KEY_BYTES_MAX} bytes")
        counts[_KINDS[hint.kind]][key] += hint.count
        lines += 1
    return lines, [pack for kind, of_kind in counts.items() for pack in _packs(kind, of_kind)]


def _packs(kind: int, counts: Counter[bytes]) -> Iterator[Pack]:
    keys = list(counts)
    for start in range(0, len(keys), PACK_HINTS_MAX):
        part = keys[start : start + PACK_HINTS_MAX]
        yield Pack(kind, 0, part, [counts[key] for key in part])
