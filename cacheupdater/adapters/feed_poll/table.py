"""One table as the database has it, and the statements that read it: `feed` makes a `Table` per table at each start.

Rows are read in the order of the column, then of the primary key, and a look goes on behind the last row that it has read. So many
rows of one value are neither skipped nor read for ever. A table without a primary key is read in the order of the watched columns,
without rows in which one of them is NULL. An index on the column alone must sort the rows of one value for each batch; one on
column and key need not.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    and_,
    bindparam,
    cast,
    column,
    inspect,
    literal_column,
    or_,
    select,
    table,
    text,
    tuple_,
    types,
)

from cacheupdater.adapters.feed_poll.columns import Kind, kind_of, latest
from cacheupdater.core.watermark import Place
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Select

    from cacheupdater.adapters.feed_poll.columns import Clock
    from cacheupdater.adapters.feed_poll.settings import PollTable
    from cacheupdater.core.watermark import Look

_TUPLES = {"postgresql", "sqlite"}  # databases that find (a, b) > (c, d) in an index
_VERSIONED = {"r", "p"}  # PostgreSQL's tables: their rows name the transaction that made them
_FIND = text(
    "SELECT n.nspname, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.oid = to_regclass(:name)"
)


@dataclass(frozen=True, slots=True)
class Table:
    """One table. Made by `found`."""

    name: str  # as the port says
    dialect: str
    kind: Kind
    schema: str | None
    bare: str
    mark: ColumnElement[Any]
    keys: Sequence[ColumnElement[Any]]
    cells: Sequence[ColumnElement[Any]]
    has_primary_key: bool
    has_versions: bool
    nullable: bool

    def statement(self, look: Look, limit: int) -> tuple[Select[Any], Mapping[str, object]]:
        """Rows of a look: the column, the key, the watched columns, and the version of the row or NULL."""
        asked = self._select().order_by(self.mark, *self.keys).limit(limit)
        parameters: dict[str, object] = {}
        if look.after is not None:
            after = bindparam("after", type_=self.mark.type)
            parameters["after"] = look.after.value
            asked = asked.where(self._behind(after) if look.after.key else self.mark >= after)
            parameters |= {f"key{at}": each for at, each in enumerate(look.after.key)}
        if look.until is not None:
            asked = asked.where(self.mark <= bindparam("until", type_=self.mark.type))
            parameters["until"] = look.until.value
        return asked, parameters

    def last(self) -> tuple[Select[Any], Mapping[str, object]]:
        """The last row."""
        asked = self._select().order_by(self.mark.desc(), *(key.desc() for key in self.keys)).limit(1)
        return asked.where(self.mark.is_not(None)), {}

    def newest(self, now: Clock) -> tuple[Select[Any], Mapping[str, object]]:
        """The last row that is not of the future."""
        asked, _ = self.last()
        if self.kind not in {"zoned", "zoneless"}:
            return asked, {}
        moment = datetime.fromtimestamp(now.seconds, UTC) if self.kind == "zoned" else latest(now)
        return asked.where(self.mark <= bindparam("now", type_=self.mark.type)), {"now": moment}

    def beginning(self, newest: Place | None, *, overlap: float, now: Clock) -> Place | None:
        """Where a feed without a mark begins: at the present, with the transactions that are under way if the column says when."""
        if self.kind == "zoned":
            return Place(datetime.fromtimestamp(now.seconds - overlap, UTC))
        if newest is not None and isinstance(newest.value, datetime):
            return Place(newest.value - timedelta(seconds=overlap))
        return newest

    def place(self, row: Sequence[Any]) -> Place:
        """The place of a row of `statement`."""
        return Place(row[0], tuple(row[1 : 1 + len(self.keys)]))

    def _select(self) -> Select[Any]:
        version = cast(literal_column("xmin"), types.Text()) if self.has_versions else literal_column("NULL")
        asked = select(self.mark, *self.keys, *self.cells, version).select_from(self._table())
        if self.has_primary_key:
            return asked
        return asked.where(*(key.is_not(None) for key in self.keys))

    def _table(self) -> Any:
        return table(self.bare, schema=self.schema)

    def _behind(self, after: ColumnElement[Any]) -> ColumnElement[bool]:
        """Rows behind a place with a key."""
        binds = [bindparam(f"key{at}", type_=key.type) for at, key in enumerate(self.keys)]
        if self.dialect in _TUPLES:
            return tuple_(self.mark, *self.keys) > tuple_(after, *binds)
        steps = [
            and_(
                *(k == b for k, b in zip(self.keys[:at], binds[:at], strict=True)), self.keys[at] > binds[at]
            )
            for at in range(len(binds))
        ]
        return and_(self.mark >= after, or_(self.mark > after, *steps))


def found(connection: Connection, polled: PollTable) -> Table:
    """Reads what the database knows of a table. Raises Misconfigured if the table cannot be polled."""
    schema, bare = _located(connection, polled.watched.table)
    name = f"{schema}.{bare}" if schema else bare
    inspector = inspect(connection)
    if not inspector.has_table(bare, schema):
        raise Misconfigured(f"there is no table {polled.watched.table}, or this user may not see it")
    columns = {each["name"]: each for each in inspector.get_columns(bare, schema)}
    for wanted in (polled.column, *polled.watched.columns):
        if wanted not in columns:
            raise Misconfigured(f"the table {name} has no column {wanted}")
    dialect = connection.dialect.name
    key = inspector.get_pk_constraint(bare, schema)["constrained_columns"]

    def raw(name: str) -> ColumnElement[Any]:
        return column(name, types.NullType() if dialect == "sqlite" else _base(columns[name]["type"]))

    return Table(
        name=name,
        dialect=dialect,
        kind=kind_of(f"{name}.{polled.column}", _base(columns[polled.column]["type"]), dialect),
        schema=schema,
        bare=bare,
        mark=raw(polled.column),
        keys=[raw(each) for each in key or polled.watched.columns],
        # with names of their own, or ORDER BY might mean the cast
        cells=[_told(raw(each)).label(f"cell{at}") for at, each in enumerate(polled.watched.columns)],
        has_primary_key=bool(key),
        has_versions=dialect == "postgresql" and _has_versions(connection, schema, bare),
        nullable=bool(columns[polled.column].get("nullable", True)),
    )


def _located(connection: Connection, written: str) -> tuple[str | None, str]:
    """The schema of the table, which the configuration need not name, and its name."""
    schema, _, bare = written.rpartition(".")
    if connection.dialect.name == "sqlite":
        return schema or None, bare
    if schema or connection.dialect.name != "postgresql":
        return schema or inspect(connection).default_schema_name, bare
    quoted = connection.dialect.identifier_preparer.quote(bare)
    row = connection.execute(_FIND, {"name": quoted}).first()
    return (row[0] if row else "public"), bare


def _has_versions(connection: Connection, schema: str | None, bare: str) -> bool:
    quote = connection.dialect.identifier_preparer.quote
    row = connection.execute(_FIND, {"name": f"{quote(schema or '')}.{quote(bare)}"}).first()
    return row is not None and row[1] in _VERSIONED


def _base(kind: types.TypeEngine[Any]) -> types.TypeEngine[Any]:
    """The type below a domain of PostgreSQL."""
    below: types.TypeEngine[Any] = getattr(kind, "data_type", kind)
    return below


def _told(raw: ColumnElement[Any]) -> ColumnElement[Any]:
    """Whole numbers, UUIDs and texts as they are; any other type as the database writes it."""
    return (
        raw
        if isinstance(raw.type, types.Integer | types.Uuid | types.String | types.NullType)
        else cast(raw, types.String())
    )
