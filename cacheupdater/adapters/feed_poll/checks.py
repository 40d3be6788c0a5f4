"""What a feed that polls needs in the database: the tables, a column that can be polled by, and an index that finds its rows.

`check --connect` and `changes install` make a `PollChecks` per source. It changes nothing: an index is for the owner of the table to
make, at an hour of their choice. The plan of the feed's own statement says whether an index serves it: on PostgreSQL with
`enable_seqscan = off`, for a small table is read whole whatever indexes it has. Of other databases than PostgreSQL and SQLite
only the list of indexes is read.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect, text

from cacheupdater.adapters.feed_poll.columns import ANY_CLOCK, CLOCKS, clock, is_early, is_fine
from cacheupdater.adapters.feed_poll.table import Table, found
from cacheupdater.core.watermark import Look, Place
from cacheupdater.errors import Faulty, Misconfigured
from cacheupdater.feed_ports import Lack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from cacheupdater.adapters.feed_poll.columns import Kind
    from cacheupdater.adapters.feed_poll.settings import Database, PollSettings, PollTable


_ANY: dict[Kind, Any] = {
    "zoned": datetime(2000, 1, 1, tzinfo=UTC),
    "zoneless": datetime(2000, 1, 1),  # noqa: DTZ001  as the column's values
    "whole": 0,
    "text": "2000-01-01",
}
"""A value of each kind, for a plan."""


class PollChecks:
    """The tables of one source."""

    def __init__(self, database: Database, settings: PollSettings) -> None:
        self._database = database
        self._settings = settings

    async def lacks(self) -> Sequence[Lack]:
        """As the port says."""
        lacks: list[Lack] = []
        for polled in self._settings.tables:
            try:
                lacks += await self._database.inspect(partial(_lacks, polled))
            except Faulty as e:  # such as a missing right to the table
                lacks.append(Lack(f"{polled.watched.table} cannot be read: {e}"))
        return lacks

    async def install(self) -> Sequence[str]:
        """Nothing: a feed that polls makes nothing in the database. `lacks` has the indexes that the tables' owner should make."""
        return ()

    async def remove(self) -> Sequence[str]:
        """Nothing, as nothing was made."""
        return ()

    async def script(self) -> Sequence[str]:
        """The indexes that are missing."""
        return [statement for lack in await self.lacks() for statement in lack.sql]

    async def removal(self) -> Sequence[str]:
        """Nothing, as nothing was made."""
        return ()

    async def close(self) -> None:
        """As the port says."""
        await self._database.close()


def _lacks(polled: PollTable, connection: Connection) -> list[Lack]:
    try:
        table = found(connection, polled)
    except Misconfigured as e:
        return [Lack(str(e))]
    return [*_index(connection, table), *_blind(table), *_times(connection, table)]


def _index(connection: Connection, table: Table) -> Iterator[Lack]:
    """An index on the column, or better on the column and the key."""
    column = str(table.mark.name)
    names = [column]
    if table.has_primary_key:
        names = list(dict.fromkeys([column, *(str(key.name) for key in table.keys)]))
    there = _indexes(connection, table)
    usable = _planned(connection, table)
    if usable is None:
        usable = any(index[:1] == [column] for index in there)
    sql = [_make(connection, table, names)]
    if not usable:
        what = f"no index finds the rows of {table.name} by {column}: each look would read the whole table"
        yield Lack(what, sql)
    elif names not in [index[: len(names)] for index in there] and len(names) > 1:
        yield Lack(
            f"the index of {table.name} on {column} lacks the key: a statement that changes many rows at once"
            " is read slowly, as the database must sort them for each batch",
            sql,
            grave=False,
        )


def _indexes(connection: Connection, table: Table) -> list[list[str | None]]:
    """The columns of all indexes, the primary key's among them."""
    inspector = inspect(connection)
    there = [list(index["column_names"]) for index in inspector.get_indexes(table.bare, table.schema)]
    return [*there, [*inspector.get_pk_constraint(table.bare, table.schema)["constrained_columns"]]]


def _make(connection: Connection, table: Table, names: Sequence[str]) -> str:
    quote = connection.dialect.identifier_preparer.quote
    make = "CREATE INDEX CONCURRENTLY" if table.dialect == "postgresql" else "CREATE INDEX"
    where = ".".join(quote(part) for part in (table.schema, table.bare) if part)
    listed = ", ".join(map(quote, names))
    return f"{make} {quote(f'{table.bare}_{names[0]}_changes')} ON {where} ({listed})"


def _planned(connection: Connection, table: Table) -> bool | None:
    """Whether the plan of a look finds its rows by an index on the column; None: plans of this database are not read."""
    if table.dialect not in {"postgresql", "sqlite"}:
        return None
    place = Place(_ANY[table.kind])
    asked, parameters = table.statement(Look("near", place, place, 0.0), 1)
    compiled = asked.compile(dialect=connection.dialect)
    said = compiled.construct_params(parameters)
    values = tuple(said[name] for name in compiled.positiontup or ())
    if table.dialect == "sqlite":
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", values).all()
        return any(f"({table.mark.name}>" in str(step[-1]) for step in steps)
    connection.exec_driver_sql("SET enable_seqscan = off")
    try:
        [[plan]] = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {compiled}", values).all()
    finally:
        connection.exec_driver_sql("RESET enable_seqscan")
    nodes = list(_nodes(json.loads(plan) if isinstance(plan, str) else plan))
    conditions = " ".join(str(node.get("Index Cond", "")) for node in nodes)
    return table.mark.name in conditions and all(node.get("Node Type") != "Seq Scan" for node in nodes)


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a plan, as PostgreSQL tells it."""
    if isinstance(plan, list):
        for each in plan:
            yield from _nodes(each)
    elif isinstance(plan, dict):
        yield plan
        for each in plan.values():
            yield from _nodes(each)


def _blind(table: Table) -> Iterator[Lack]:
    """What the feed will not see, though it works."""
    yield Lack(
        f"deleted rows of {table.name} are not told: poll cannot see them, so their keys live until their ttl",
        grave=False,
    )
    column = table.mark.name
    if table.nullable:
        yield Lack(
            f"rows of {table.name} whose {column} is NULL are not told; make the column NOT NULL", grave=False
        )
    if not table.has_primary_key:
        yield Lack(
            f"{table.name} has no primary key: rows with NULL in a watched column are not told", grave=False
        )


def _times(connection: Connection, table: Table) -> Iterator[Lack]:
    """What the last row shows of the column's values."""
    now = clock(*connection.execute(text(CLOCKS.get(table.dialect, ANY_CLOCK))).one())
    asked, parameters = table.last()
    row = connection.execute(asked, parameters).first()
    if row is None:
        return
    column = f"{table.name}.{table.mark.name}"
    if is_early(table.kind, row[0], now):
        yield Lack(
            f"{column} holds times that the database's clock has not reached: these rows are read by each look",
            grave=False,
        )
    if not (table.has_versions or is_fine(row[0])):
        yield Lack(
            f"{column} looks like a time without microseconds, by which two changes of a row may look alike: each change is"
            " told about ten times, and each time may cost a row if the key is read",
            grave=False,
        )
