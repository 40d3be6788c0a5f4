"""What a column of a Debezium event holds, as a cell.

`decode` calls `cell` for each watched column. With a schema, the type of the column decides; without one, the kind of JSON that the
value is. A value that no key can be made of is not told, and its row is counted then: times (numbers since 1970, which other
feeds tell as text), floats, booleans and bytes. Pure, and every number is bounded.
"""

from __future__ import annotations

from base64 import b64decode
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cacheupdater.feed_ports import Cell

Json: TypeAlias = object
"""What msgspec makes of JSON."""

Types: TypeAlias = "Mapping[str, Mapping[str, Json]]"
"""The schema of each column; nothing if the event has none."""

UNTOLD: Final = object()
"""The event does not tell the value, or not so that a key could say it."""

UNAVAILABLE = "__debezium_unavailable_value"  # what a connector says for a large value that has not changed
_UUID = "io.debezium.data.Uuid"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_WHOLE = {"int8", "int16", "int32", "int64"}
_SCALE_MIN, _SCALE_MAX = (
    -1000,
    16_383,
)  # PostgreSQL's, which are the widest; a larger one would make megabytes of zeros


def cell(value: Json, schema: Mapping[str, Json] | None) -> Cell | object:
    """The cell of a value, or UNTOLD. `schema` is that of its column, if the event has one."""
    if value is None:
        return None
    if value == UNAVAILABLE:
        return UNTOLD
    try:
        return _by_kind(value) if schema is None else _by_type(value, schema)
    except (ValueError, TypeError):
        return UNTOLD


def _by_kind(value: Json) -> Cell | object:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return _variable(value) if isinstance(value, dict) else UNTOLD


def _by_type(value: Json, schema: Mapping[str, Json]) -> Cell | object:
    name, kind = schema.get("name"), schema.get("type")
    if isinstance(name, str) and name in _NAMED:
        return _NAMED[name](value, schema)
    if kind == "string":
        return str(value)
    if kind in _WHOLE and name is None and isinstance(value, int):
        return value
    return UNTOLD


def _uuid(value: Json, _: Mapping[str, Json]) -> Cell | object:
    return UUID(str(value))


def _decimal(value: Json, schema: Mapping[str, Json]) -> Cell | object:
    parameters = schema.get("parameters")
    return _number(value, parameters.get("scale")) if isinstance(parameters, dict) else UNTOLD


def _variable(value: Json, _: Mapping[str, Json] | None = None) -> Cell | object:
    """A decimal that brings its scale. Nothing else has these two fields."""
    if isinstance(value, dict) and value.keys() == {"scale", "value"}:
        return _number(value["value"], value["scale"])
    return UNTOLD


def _number(unscaled: Json, scale: Json) -> Cell | object:
    """A decimal as text, as the other feeds tell it."""
    if not isinstance(unscaled, str) or not isinstance(scale, str | int):
        return UNTOLD
    places = int(scale)
    if not _SCALE_MIN <= places <= _SCALE_MAX:
        return UNTOLD
    whole = int.from_bytes(b64decode(unscaled, validate=True), signed=True)
    # not `scaleb`, which rounds to 28 digits
    digits = tuple(map(int, str(abs(whole))))
    return f"{Decimal((int(whole < 0), digits, -places)):f}"


_NAMED: Mapping[str, Callable[[Json, Mapping[str, Json]], Cell | object]] = {
    _UUID: _uuid,
    _DECIMAL: _decimal,
    _VARIABLE: _variable,
}


_FILLERS: tuple[Json, ...] = (None, 0, "", [], "AA==", "1970-01-01T00:00:00Z", "00:00:00Z")


def is_filler(value: Json, schema: Mapping[str, Json] | None) -> bool:
    """Whether a connector may have put the value where the database has told none.

    A column that may not be NULL must have a value in the event: its default, or the zero of its type. A structure says nothing.
    """
    default = schema.get("default") if schema else None
    return isinstance(value, dict) or value in _FILLERS or value == default
