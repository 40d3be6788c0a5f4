"""Numbers and times as an application spells them, where a namespace's `value.numbers` and `value.times` say so.

An application that cached before may have written a NUMERIC as a number, as `float()` makes one, and a time as Python's
`isoformat()` does, as FastAPI's `jsonable_encoder` does, or as `str()` does, as `json.dumps(..., default=str)` does.
`encoding.encoder` puts this before its encoder for such a namespace; with the usual settings it is never called.
Pure functions on what a loader returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Literal, TypeAlias

import msgspec

from cacheupdater_client.protocol import odd_values

Numbers: TypeAlias = Literal["text", "plain"]
Times: TypeAlias = Literal["rfc3339", "iso", "str"]
Respell: TypeAlias = Callable[[object], object]


def respeller(numbers: Numbers, times: Times, *, floats: bool = False) -> Respell:
    """What changes a value's numbers and times, however deep they lie, and leaves the rest.

    `floats`: for encodings that spell a number as its column does, a plain one is made a float.
    """

    def respell(value: object) -> object:
        if isinstance(value, Mapping):
            return {name: respell(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [respell(part) for part in value]
        if isinstance(value, msgspec.Struct) or is_dataclass(value) or hasattr(value, "model_dump"):
            return respell(odd_values.plain(value))
        if numbers == "plain" and isinstance(value, Decimal) and not value.is_finite():
            return None  # no JSON number says it
        if floats and numbers == "plain" and isinstance(value, Decimal):
            return float(value)
        return _TIMES[times](value)

    return respell


def _iso(value: object) -> object:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value


def _str(value: object) -> object:
    return str(value) if isinstance(value, datetime | date | time | timedelta) else value


def _as_it_is(value: object) -> object:
    return value


_TIMES: Mapping[Times, Respell] = {"rfc3339": _as_it_is, "iso": _iso, "str": _str}
