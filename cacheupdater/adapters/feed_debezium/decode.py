"""What one event of a Debezium topic says: the key and value of a record in, changed rows out.

`feed` makes one `Decoder` per turn and table, and `checks` one per topic. Every connector for SQL has the same envelope: `op`,
`before`, `after` and `source`, with or without the schema around it. Whatever the bytes are, `told` returns, or raises Unread.

PostgreSQL tells the old row of a delete only as far as the table's REPLICA IDENTITY reaches, and the connector fills the other
columns with zeros and defaults. No event says which values are real. But an update tells: its old row is there if the identity
is FULL, and else not. So a decoder remembers the last update. Before the first one, an old row that holds nothing but zeros and
defaults beside its key counts as filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from cacheupdater.adapters.feed_debezium.values import UNTOLD, cell, is_filler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.adapters.feed_debezium.values import Json, Types
    from cacheupdater.feed_ports import Cells

Row: TypeAlias = "Mapping[str, Json]"

SCHEMAS_MAX = 16  # schemas of one table that are remembered: it has one, and another after each ALTER TABLE
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
_MESSAGE = "m"  # of pg_logical_emit_message
_TRUNCATE = "t"
_PARTIAL = "postgresql"  # the connector whose old rows may be filled


class _Record(msgspec.Struct):
    """An event, or the envelope around an event and its schema. The rest of its fields is passed over unread."""

    op: object = None
    before: object = None
    after: object = None
    source: object = None
    payload: msgspec.Raw = msgspec.Raw()
    schema: msgspec.Raw = msgspec.Raw()


_RECORD = msgspec.json.Decoder(_Record)


class Told(NamedTuple):
    """A change that an event tells."""

    rows: Sequence[Cells]  # as they were and as they are; none: the table was emptied
    committed: float | None  # seconds since 1970, by the database's clock
    deleted: bool  # the row is gone


class Unread(Exception):
    """The event tells no change that can be read. `reason` is the label by which it is counted."""

    def __init__(self, reason: Literal["malformed", "foreign"]) -> None:
        super().__init__(reason)
        self.reason: Literal["malformed", "foreign"] = reason


class Decoder:
    """Reads the events of one table, in the order of each partition."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._whole: bool | None = None  # whether the old row is told; None: no update has come
        self._types: dict[bytes, Types] = {}  # by the text of the schema, which each event brings anew

    def told(self, key: bytes | None, value: bytes | None) -> Told | None:
        """The change; None if the record tells none on purpose. Raises Unread."""
        if value is None:  # a tombstone, for compaction
            return None
        event, types = self._opened(value)
        op, source = event.op, event.source
        if not isinstance(op, str) or not isinstance(source, dict):
            raise Unread("foreign")
        if not isinstance(connector := source.get("connector"), str):
            raise Unread("foreign")
        if op == _MESSAGE:
            return None
        if op == _TRUNCATE:
            return Told((), _committed(source), deleted=False)
        before, after = _row(event.before), _row(event.after)
        if op in {"c", "r"} and after is not None:
            rows = [self._cells(after, types)]
        elif op == "u" and after is not None:
            self._whole = before is not None
            rows = self._updated(before, after, types)
        elif op == "d":
            rows = [self._deleted(before, key, types, connector)]
        else:
            raise Unread("foreign")
        return Told(rows, _committed(source), deleted=op == "d")

    def _opened(self, value: bytes) -> tuple[_Record, Types]:
        """The event, and the types of the rows in it."""
        found = _decoded(value)
        payload, schema = bytes(found.payload), bytes(found.schema)
        if found.op is not None or payload in {b"", b"null"}:
            return found, {}
        if schema not in self._types:
            if len(self._types) >= SCHEMAS_MAX:
                self._types.clear()
            self._types[schema] = _types(schema)
        return _decoded(payload), self._types[schema]

    def _updated(self, before: Row | None, after: Row, types: Types) -> list[Cells]:
        now = self._cells(after, types)
        if before is None:  # the key is as it was
            return [now]
        was = self._cells(before, types)
        now = {**was, **now}  # a large value that has not changed is told in the old row alone
        return [now] if now == was else [was, now]

    def _deleted(self, before: Row | None, key: bytes | None, types: Types, connector: str) -> Cells:
        row, key_types = _key(key)
        was = before or {}
        if connector == _PARTIAL and not self._is_whole(was, row, types):
            was = {name: value for name, value in was.items() if name in row}
        return {**self._cells(row, key_types), **self._cells(was, types)}

    def _is_whole(self, before: Row, key: Row, types: Types) -> bool:
        if self._whole is not None:
            return self._whole
        return any(
            name not in key and not is_filler(value, types.get(name)) for name, value in before.items()
        )

    def _cells(self, row: Row, types: Types) -> Cells:
        """The watched columns that the row tells."""
        found: dict[str, object] = {
            name: cell(row[name], types.get(name, {}) if types else None)
            for name in self._columns
            if name in row
        }
        return {name: value for name, value in found.items() if value is not UNTOLD}  # type: ignore[misc]  # cells alone are left


def _decoded(data: bytes) -> _Record:
    try:
        return _RECORD.decode(data)
    except _MALFORMED:
        # its text could quote the row
        raise Unread("malformed") from None


def _types(schema: bytes) -> Types:
    fields = _fields(_parsed(schema)) if schema else {}
    return _fields(fields.get("after") or fields.get("before") or {})


def _parsed(data: bytes) -> Json:
    try:
        return msgspec.json.decode(data)
    except _MALFORMED:
        raise Unread("malformed") from None


def _key(data: bytes | None) -> tuple[Row, Types]:
    """The columns of the record's key, and their types. Nothing if there is none, or none in JSON: the old row may do without."""
    try:
        found = _parsed(data) if data is not None else {}
    except Unread:
        found = {}
    if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
        found, types = found["payload"], _fields(found["schema"])
    else:
        types = {}
    return (found, types) if isinstance(found, dict) else ({}, {})


def _fields(schema: Json) -> dict[str, dict[str, Json]]:
    """The schemas of a structure's fields, by name."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return {}
    named = ((each.get("field"), each) for each in fields if isinstance(each, dict))
    return {name: each for name, each in named if isinstance(name, str)}


def _row(row: Json) -> Row | None:
    """A row of the event. MongoDB's connector has a text there, of which no columns can be read."""
    if row is not None and not isinstance(row, dict):
        raise Unread("foreign")
    return row


def _committed(source: Row) -> float | None:
    """When the change was committed, as finely as the connector says."""
    for name, unit in (("ts_us", 1e6), ("ts_ms", 1e3)):
        said = source.get(name)
        if isinstance(said, int) and 0 < said < 1 << 63:
            return said / unit
    return None
