"""The form in which marks keep places: JSON of pairs, each with the type of a value and its text.

`feed` writes a mark with each confirmed batch, and reads it at its next start. A key of another type is left out: then a restart
reads again all rows of that value.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from cacheupdater.core.watermark import Kept, Place
from cacheupdater.errors import Faulty

if TYPE_CHECKING:
    from collections.abc import Callable

_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "str": str,
    "bool": lambda text: text == "True",
    "float": float.fromhex,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "UUID": UUID,
    "Decimal": Decimal,
    "bytes": bytes.fromhex,
}
_WRITE: dict[str, Callable[[Any], str]] = {
    "float": float.hex,
    "datetime": datetime.isoformat,
    "date": date.isoformat,
    "bytes": bytes.hex,
}


def written(kept: Kept) -> str:
    """The text of a mark."""
    return msgspec.json.encode([_written(place) for place in kept]).decode()


def read(text: str, feed: str) -> Kept:
    """The places in a mark. Raises Faulty if no feed has written it."""
    try:
        settled, front = msgspec.json.decode(text, type=list[list[tuple[str, str]] | None])
        return Kept(_read(settled), _read(front))
    except (msgspec.DecodeError, ValueError, KeyError, ArithmeticError) as e:
        raise Faulty(f"the mark of {feed} in Redis is not ours; remove the feed's key there") from e


def _written(place: Place | None) -> list[tuple[str, str]] | None:
    if place is None:
        return None
    names = [_name(each) for each in (place.value, *place.key)]
    values = (place.value, *place.key) if all(name in _READ for name in names) else (place.value,)
    return [(name, _WRITE.get(name, str)(value)) for name, value in zip(names, values, strict=False)]


def _name(value: object) -> str:
    """asyncpg has a subclass of UUID."""
    return "UUID" if isinstance(value, UUID) else type(value).__name__


def _read(pairs: list[tuple[str, str]] | None) -> Place | None:
    if pairs is None:
        return None
    value, *key = (_READ[name](text) for name, text in pairs)
    return Place(value, tuple(key))
