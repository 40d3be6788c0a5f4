"""Rows from a SQL database: one statement per unit, matched back to the keys by the captured names.

The service makes one `SqlSource` per configured source (its pool and deadline) and one `SqlLoader` per namespace; both
live as long as the process. What differs between PostgreSQL and SQLite is in `drivers`.

The statement says `IN :name` (one capture) or `IN :keys` (tuples of all captures, in their order). On PostgreSQL that
is `= ANY` of one array or a join with `unnest` of several, on SQLite a list. The result carries every captured name as
a column. A key's value is the row as a dict, captured columns included, or what `columns` names of it; with
`rows="many"` a list of those in the order of the result.

Absence deletes, so a load returns only from a complete read: a row that nobody asked for, or two rows where one is
expected, fail the whole statement. No error text holds a value, and no driver's error is passed on (`from None`).
"""

from __future__ import annotations

import asyncio
import re
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import create_async_engine

from cacheupdater.adapters.loader_sql.drivers import Driver, Parts, PostgreSql, Rows, Sqlite
from cacheupdater.errors import Faulty, Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy.pool import PoolProxiedConnection

    from cacheupdater.core.keyspace import Captures, CaptureType, Pattern

GRACE_S = 0.2  # the database ends a slow statement itself and keeps the connection; we wait this much longer
RECYCLE_S = 300  # firewalls forget idle connections; a fresh one every 5 minutes costs nothing

RowsPerKey: TypeAlias = Literal["one", "many"]
_Places: TypeAlias = "tuple[Callable[..., object], Sequence[str], Callable[..., Iterable[object]]]"

_DRIVERS: dict[str, type[PostgreSql | Sqlite]] = {
    "postgresql": PostgreSql,
    "postgres": PostgreSql,
    "sqlite": Sqlite,
}
_IN = re.compile(r"\b(NOT\s+)?IN\s*(?:\(\s*:(\w+)\s*\)|:(\w+)\b)", re.IGNORECASE)
_BIND = re.compile(r"(?<![:\w\\]):([A-Za-z_]\w*)")  # as in SQLAlchemy, `x::text` and `\:word` are none
_TABLE = re.compile(r"\w+(\.\w+)?")


class SqlSource:
    """One database: its connections, its deadline, its errors. Shared by all loaders of a source."""

    def __init__(self, url: str, *, pool_size: int = 5, statement_timeout: float = 1.0) -> None:
        """`statement_timeout` in seconds, waiting for a connection included."""
        self._deadline = statement_timeout + GRACE_S
        try:
            address = make_url(url)
            self._driver: Driver = _DRIVERS[address.get_backend_name()]()
            self._engine = create_async_engine(
                self._driver.address(address),
                connect_args=self._driver.arguments(statement_timeout),
                isolation_level="AUTOCOMMIT",  # one statement reads one snapshot; BEGIN would cost a round trip
                hide_parameters=True,
                pool_size=pool_size,
                max_overflow=0,
                pool_timeout=statement_timeout,
                pool_recycle=RECYCLE_S,
                pool_reset_on_return=None,  # reads in autocommit leave nothing to reset
            )
        except KeyError:
            raise Misconfigured(
                "a source's url begins with postgresql+asyncpg:// or sqlite+aiosqlite://"
            ) from None
        except ModuleNotFoundError as e:
            raise Misconfigured(
                f"this source needs {e.name}: pip install 'cacheupdater[updater,postgres]'"
            ) from None
        except SQLAlchemyError as e:  # its text would show the url, and the password in it
            raise Misconfigured(f"a source's url cannot be read ({type(e).__name__})") from None

    def select(self, table: str, names: Sequence[str], columns: Sequence[str] | None = None) -> str:
        """The statement that `table: products` is short for. Names come from the configuration only."""
        if not _TABLE.fullmatch(table):
            raise Misconfigured(f"{table!r} is no table name: write `table` or `schema.table`, or use sql")
        quoted = self._engine.dialect.identifier_preparer.quote
        spelled = [quoted(name).replace(":", r"\:") for name in names]
        wanted = spelled + [quoted(name).replace(":", r"\:") for name in columns or () if name not in names]
        what = "*" if columns is None else ", ".join(wanted)
        condition = f"{spelled[0]} IN :keys" if len(names) == 1 else f"({', '.join(spelled)}) IN :keys"
        return f"SELECT {what} FROM {'.'.join(map(quoted, table.split('.')))} WHERE {condition}"  # noqa: S608  quoted names

    def bound(self, keys: Sequence[Captures]) -> Sequence[Captures]:
        """The keys as this database's columns hold them."""
        return self._driver.bound(keys)

    async def fetch(self, parts: Parts, types: Sequence[CaptureType], keys: Sequence[Captures]) -> Rows:
        """Runs one statement for these bound keys, within the deadline."""
        try:
            async with asyncio.timeout(self._deadline):
                return await self._run(await self._connected(), parts, types, keys)
        except TimeoutError:
            raise Unavailable(f"no answer from the database within {self._deadline:.3g} s") from None

    async def _connected(self) -> PoolProxiedConnection:
        """A connection from the pool; those that died while they lay there are known without asking the server."""
        try:
            connection = await self._engine.raw_connection()
            while self._driver.closed(connection.driver_connection):
                connection.invalidate()
                connection = await self._engine.raw_connection()
        except PoolTimeoutError:
            raise Unavailable(
                "all connections of the source are busy: more loads at once than its pool_size"
            ) from None
        except Exception as e:  # noqa: BLE001  no key is to blame for a connection that cannot be made, whatever the reason
            raise Unavailable(f"cannot connect: {self._driver.translated(e)}") from None
        return connection

    async def _run(
        self,
        connection: PoolProxiedConnection,
        parts: Parts,
        types: Sequence[CaptureType],
        keys: Sequence[Captures],
    ) -> Rows:
        """The connection goes back to the pool, unless a statement may still run on it."""
        raw = connection.driver_connection
        try:
            return await self._driver.run(raw, parts, types, keys)
        except Exception as e:  # noqa: BLE001  drivers raise more than their own errors; all are told as ours
            raise self._driver.translated(e) from None
        except BaseException:  # our deadline or the caller's cancellation: the statement may still run
            await self._driver.abort(raw)
            connection.invalidate()
            raise
        finally:
            connection.close()

    async def close(self) -> None:
        """Closes the connections; a load that is running is lost."""
        await self._engine.dispose()


class SqlLoader:
    """One namespace's statement on its source. Closing it leaves the source open."""

    def __init__(
        self,
        source: SqlSource,
        sql: str,
        pattern: Pattern,
        *,
        columns: Sequence[str] | None = None,
        rows: RowsPerKey = "one",
    ) -> None:
        """`sql` selects by `IN :name` or `IN :keys`; Misconfigured says where it does not."""
        self._source = source
        self._names = pattern.names
        self._types = pattern.types
        self._columns = columns
        self._rows = rows
        self._parts = _cut(sql, pattern.names)
        self._seen: Sequence[str] = ()
        self._places: _Places

    async def load(self, keys: Sequence[Captures]) -> Mapping[Captures, object]:
        """As `ports.Loader`, by one statement."""
        if not keys:
            return {}
        bound = self._source.bound(keys)
        names, rows = await self._source.fetch(self._parts, self._types, bound)
        if not rows:
            return {}
        if names != self._seen:  # the first result, or the table has changed
            self._places, self._seen = self._placed(names), names
        locate, shown, pick = self._places
        single = len(self._names) == 1
        wanted: dict[object, Captures] = dict(
            zip((key[0] for key in bound) if single else bound, keys, strict=True)
        )
        try:
            owners = [wanted[locate(row)] for row in rows]
        except (KeyError, TypeError):  # TypeError: a column of lists
            raise self._foreign(wanted, [locate(row) for row in rows]) from None
        values = (dict(zip(shown, pick(row), strict=True)) for row in rows)
        return self._grouped(owners, values)

    async def close(self) -> None:
        """The source outlives its loaders."""

    def _placed(self, names: Sequence[str]) -> _Places:
        """Where a row says whose it is, and what of it is the value."""
        shown = self._columns or names
        for name in (*self._names, *shown):
            if names.count(name) != 1:
                fault = "does not return" if name not in names else "returns twice"
                hint = "; each capture needs a column of its name (AS)" if name in self._names else ""
                raise Faulty(
                    f"the statement {fault} the column {name!r}; it returns {', '.join(names)}{hint}"
                )
        at = [names.index(name) for name in shown]
        pick = (
            tuple
            if shown is names
            else (itemgetter(*at) if len(at) > 1 else itemgetter(slice(at[0], at[0] + 1)))
        )
        return itemgetter(*map(names.index, self._names)), shown, pick

    def _grouped(self, owners: Sequence[Captures], values: Iterable[object]) -> Mapping[Captures, object]:
        if self._rows == "one":
            found = dict(zip(owners, values, strict=True))
            if len(found) < len(owners):
                raise Faulty(
                    f"the statement returns {len(owners)} rows for {len(found)} keys; one row per key is expected (rows: many)"
                )
            return found
        groups: dict[Captures, list[object]] = {}
        for owner, value in zip(owners, values, strict=True):
            groups.setdefault(owner, []).append(value)
        return groups

    def _foreign(self, wanted: Mapping[object, Captures], located: Sequence[object]) -> Faulty:
        """Says whose rows they are not, and the usual reason: the column is of another type than the capture."""
        known = next(iter(wanted))
        strange = [each for each in located if not isinstance(each, type(known)) or each not in wanted]
        expected, got = (value if isinstance(value, tuple) else (value,) for value in (known, strange[0]))
        kinds = [
            f"column {name!r} holds {type(b).__name__} where the key holds {type(a).__name__}"
            for name, a, b in zip(self._names, expected, got, strict=True)
            if not isinstance(b, type(a))
        ]
        return Faulty(
            f"{len(strange)} of {len(located)} rows are of no key that was asked for; "
            + ("; ".join(kinds) or f"compare {', '.join(self._names)} exactly, in case and blanks too")
        )


def _cut(sql: str, names: tuple[str, ...]) -> Parts:
    """The statement in the pieces around `IN :keys`; refuses every other bind, and a statement without any."""
    usable = {"keys", *names} if len(names) == 1 else {"keys"}
    advice = f"IN :{names[0]}" if len(names) == 1 else f"({', '.join(names)}) IN :keys"
    parts, at = [], 0
    for match in _IN.finditer(sql):
        if (match[2] or match[3]) not in usable or match[1]:
            continue
        parts.append(sql[at : match.start()])
        at = match.end()
    parts.append(sql[at:])
    stray = next((bind[1] for part in parts if (bind := _BIND.search(part))), None)
    if stray is not None:
        raise Misconfigured(
            f"the statement cannot bind :{stray}; it selects many rows at once, by `{advice}` (\\: is a colon)"
        )
    if len(parts) == 1:
        raise Misconfigured(f"the statement must select the rows of many keys at once, by `{advice}`")
    return tuple(part.replace(r"\:", ":") for part in parts)
