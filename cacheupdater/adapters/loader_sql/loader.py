"""Rows from a SQL database: one statement per unit, whose rows are matched to the keys by the captured names.

The service makes one `SqlSource` per configured source (its pool and deadline) and one `SqlLoader` per namespace. Both live
as long as the process. `drivers` holds the differences between databases, `statement` reads the text of a statement, and
`matching` finds the key of each row.

The statement says `IN :name` (one capture) or `IN :keys` (tuples of all captures, in their order). On PostgreSQL this becomes
`= ANY` of one array, or a selection from `unnest` of several arrays; on other databases it becomes a list.

No error text holds a value, and no driver's error is passed on (`from None`).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DisconnectionError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import greenlet_spawn

from cacheupdater.adapters.loader_sql import safe_errors
from cacheupdater.adapters.loader_sql.drivers import Driver, PostgreSql, Sqlite
from cacheupdater.adapters.loader_sql.matching import Matching, Result, RowsPerKey
from cacheupdater.adapters.loader_sql.statement import statement
from cacheupdater.core import database_url
from cacheupdater.encryption import Tls, context
from cacheupdater.errors import CacheUpdaterError, Misconfigured, TimedOut, Unavailable, Unreached
from cacheupdater.packages import lacking
from cacheupdater.ports import at_once

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sqlalchemy import Connection, Executable, TextClause
    from sqlalchemy.engine import AdaptedConnection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from cacheupdater.adapters.loader_sql import stamps
    from cacheupdater.ports import Leaves
    from cacheupdater_client.protocol.patterns import Captures, CaptureType, Pattern

GRACE_S = (
    0.2  # the database ends a slow statement itself and keeps the connection, so we wait this much longer
)
# compiled statements that SQLAlchemy keeps, or it would compile them again: one per namespace, some KiB each
COMPILED_MAX = 10_000
FAREWELL_S = (
    1.0  # to close; a driver may wait for ever for the close of a server that hangs, and the process must end
)
RECYCLE_S = 300  # firewalls forget idle connections; a new one every 5 minutes costs nothing

_DRIVERS: dict[str, type[Driver]] = {"postgresql": PostgreSql, "postgres": PostgreSql, "sqlite": Sqlite}
T = TypeVar("T")
_Use: TypeAlias = "Callable[[AsyncConnection], Awaitable[T]]"
_TABLE = re.compile(r"\w+(\.\w+)?")


class _Outdated(Exception):
    """A table has changed since its statement was prepared."""


@dataclass(slots=True)
class _Sent:
    """When a statement has left, by the loop's clock; infinite while it has not."""

    leaves: Leaves
    at: float = inf

    def now(self) -> None:
        """There is a connection, so the statement leaves now. Raises if it must not leave any more."""
        self.leaves()
        self.at = asyncio.get_running_loop().time()

    def error(self, deadline: float) -> type[Unavailable]:
        """The error for a passed deadline. A statement has timed out only if it had at least half of the deadline."""
        if self.at == inf:
            return Unreached
        return TimedOut if asyncio.get_running_loop().time() - self.at >= deadline / 2 else Unavailable


def _rows_of(asked: Executable, parameters: Mapping[str, object]) -> _Use[Result]:
    async def use(connection: AsyncConnection) -> Result:
        result = await connection.execute(asked, parameters)
        return tuple(result.keys()), result.all()

    return use


class SqlSource:
    """One database: its connections, its deadline, its errors. All loaders of a source share it."""

    def __init__(
        self, url: str, *, pool_size: int = 5, statement_timeout: float = 1.0, tls: Tls | None = None
    ) -> None:
        """`statement_timeout` is in seconds, and includes the wait for a connection.

        `tls` None: connections to other machines are encrypted.
        """
        self._deadline = statement_timeout + GRACE_S
        where = database_url.parts(url)
        plain = where.local or where.database != "postgresql"  # for other databases see `Driver.arguments`
        encrypted = context(tls or Tls("off" if plain else "on"))
        try:
            address = make_url(url)
            self._host = address.host or ""
            port = f":{address.port}" if address.port else ""
            self._to = f" to {self._host}{port}" if self._host else ""
            self._driver = _DRIVERS.get(address.get_backend_name(), Driver)()
            self._engine = create_async_engine(
                self._driver.address(address),
                isolation_level="AUTOCOMMIT",  # one statement reads one snapshot; BEGIN would cost a round trip
                skip_autocommit_rollback=True,  # a rollback without a transaction would cost another one
                hide_parameters=True,
                query_cache_size=COMPILED_MAX,
                pool_size=pool_size,
                max_overflow=0,
                pool_timeout=statement_timeout,
                pool_recycle=RECYCLE_S,
                pool_reset_on_return=None,  # reads in autocommit leave nothing to reset
                **self._driver.arguments(statement_timeout, encrypted),
            )
        except ModuleNotFoundError as e:
            package = self._driver.address(
                address
            ).get_driver_name()  # SQLAlchemy names drivers by their packages
            raise Misconfigured(
                f"this source needs {e.name}: pip install {lacking(package) or package}"
            ) from None
        except (SQLAlchemyError, ValueError) as e:  # the error's text would show the url with its password
            raise Misconfigured(
                f"a source's url cannot be used ({type(e).__name__}); it begins with postgresql+asyncpg://,"
                " sqlite+aiosqlite:// or another asynchronous driver of SQLAlchemy"
            ) from None
        self._open: set[AdaptedConnection] = set()  # at most the pool's size, and those that are being closed
        self._unready: dict[asyncio.Task[object] | None, AdaptedConnection] = {}  # by who opens it
        # SQLAlchemy asks a new connection some questions of its own between these two
        event.listen(self._engine.sync_engine, "connect", self._logged_in, insert=True)
        event.listen(self._engine.sync_engine, "connect", self._ready)
        event.listen(self._engine.sync_engine, "close", lambda raw, _: self._open.discard(raw))
        event.listen(self._engine.sync_engine, "checkout", self._refuse_dead)
        event.listen(self._engine.sync_engine, "invalidate", self._abort)

    def select(
        self,
        table: str,
        names: Sequence[str],
        columns: Sequence[str] | None = None,
        *,
        stamp: stamps.Stamp | None = None,
    ) -> str:
        """The statement for which `table: products` is short. Names come from the configuration only."""
        if not _TABLE.fullmatch(table):
            raise Misconfigured(f"{table!r} is no table name: write `table` or `schema.table`, or use sql")
        quoted = self._engine.dialect.identifier_preparer.quote
        wanted = dict.fromkeys([*names, *(columns or ()), *(stamp[:1] if stamp else ())])  # each name once
        listed = [quoted(name).replace(":", r"\:") for name in wanted]
        spelled = listed[: len(names)]
        what = "*" if columns is None else ", ".join(listed)
        condition = f"{spelled[0]} IN :keys" if len(names) == 1 else f"({', '.join(spelled)}) IN :keys"
        return f"SELECT {what} FROM {'.'.join(map(quoted, table.split('.')))} WHERE {condition}"  # noqa: S608  quoted names

    def statement(self, sql: str, names: tuple[str, ...], types: Sequence[CaptureType]) -> TextClause:
        """The statement of one loader, for `fetch`. Misconfigured says what is wrong with its text."""
        return statement(sql, names, types, self._driver)

    def bound(self, keys: Sequence[Captures]) -> Sequence[Captures]:
        """The keys as this database's columns hold them."""
        return self._driver.bound(keys)

    async def fetch(self, asked: TextClause, keys: Sequence[Captures], leaves: Leaves = at_once) -> Result:
        """Runs one statement for these bound keys within the deadline."""
        return await self._answered(_rows_of(asked, self._driver.parameters(keys)), leaves)

    async def query(self, asked: Executable, parameters: Mapping[str, object] | None = None) -> Result:
        """Runs any other statement within the deadline."""
        return await self._answered(_rows_of(asked, parameters or {}))

    async def inspect(self, what: Callable[[Connection], T]) -> T:
        """What SQLAlchemy's inspector, or some statements on one connection, find within the deadline."""
        return await self._answered(lambda connection: connection.run_sync(what))

    async def _answered(self, use: _Use[T], leaves: Leaves = at_once) -> T:
        sent = _Sent(leaves)
        try:
            async with asyncio.timeout(self._deadline):
                try:
                    return await self._run(use, sent)
                except _Outdated:  # the second run prepares it again
                    return await self._run(use, sent)
        except TimeoutError:
            what = f"no answer from the database within {self._deadline:.3g} s"
            raise sent.error(self._deadline)(what) from None

    async def _connected(self) -> AsyncConnection:
        """A connection from the pool. The pool replaces connections that died while they were idle."""
        try:
            return await self._engine.connect()
        except PoolTimeoutError:
            raise Unreached(
                "all connections of the source are busy: more loads at once than its pool_size"
            ) from None
        except Exception as e:  # noqa: BLE001  if no connection can be made, no key is to blame, whatever the reason
            why = safe_errors.of_unknown_host(e, self._host) or self._driver.translated(e, connecting=True)
            raise Unreached(f"cannot connect{self._to}: {why}") from None
        finally:
            if self._unready:
                await self._give_up_unready()

    def _logged_in(self, connection: AdaptedConnection, _: object) -> None:
        self._unready[asyncio.current_task()] = connection
        self._open.add(connection)

    def _ready(self, *_: object) -> None:
        self._unready.pop(asyncio.current_task(), None)

    async def _give_up_unready(self) -> None:
        """Cuts off the connection that this task could not make ready. Old versions of SQLAlchemy forget such a connection."""
        if connection := self._unready.pop(asyncio.current_task(), None):
            self._open.discard(connection)
            await greenlet_spawn(self._driver.abort, connection)

    async def _run(self, use: _Use[T], sent: _Sent) -> T:
        """Uses a connection once. The connection goes back to the pool; SQLAlchemy closes it if a statement may still run."""
        connection = await self._connected()
        try:
            sent.now()
            return await use(connection)
        except CacheUpdaterError:  # raised by `leaves`
            raise
        except SQLAlchemyError as e:
            if self._driver.outdated(e):
                raise _Outdated from None
            raise self._driver.translated(e) from None
        except Exception as e:  # noqa: BLE001  drivers raise more than their own errors; all are turned into ours
            raw = (await connection.get_raw_connection()).dbapi_connection
            lost = not self._driver.alive(cast("AdaptedConnection", raw))
            await (
                connection.invalidate()
            )  # after an error that SQLAlchemy does not know, the state is unknown
            raise Unavailable("the connection was lost") if lost else self._driver.translated(e) from None
        finally:
            await connection.close()

    def _refuse_dead(self, connection: AdaptedConnection, *_: object) -> None:
        """Rejects a dead connection at the checkout. The pool then opens another."""
        if not self._driver.alive(connection):
            raise DisconnectionError

    def _abort(self, connection: AdaptedConnection, *_: object) -> None:
        """Aborts a connection before SQLAlchemy closes it, also after our deadline or a cancellation by the caller."""
        self._driver.abort(connection)

    async def close(self) -> None:
        """Closes the connections; if that takes too long, cuts them off. A load under way is lost."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._engine.dispose()
        except TimeoutError:  # the driver has cut off the connection for which it waited
            for connection in list(self._open):
                await greenlet_spawn(self._driver.abort, connection)


class SqlLoader:
    """The statement of one namespace on its source. A close leaves the source open."""

    def __init__(
        self,
        source: SqlSource,
        sql: str,
        pattern: Pattern,
        *,
        columns: Sequence[str] | None = None,
        rows: RowsPerKey = "one",
        stamp: stamps.Stamp | None = None,
    ) -> None:
        """`sql` selects by `IN :name` or `IN :keys`. Misconfigured says what is wrong with it."""
        self._matching = Matching(pattern.names, columns, rows=rows, stamp=stamp)
        self._source = source
        self._stamped = stamp is not None
        self._statement = source.statement(sql, pattern.names, pattern.types)

    async def load(self, keys: Sequence[Captures], leaves: Leaves = at_once) -> Mapping[Captures, object]:
        """As `ports.Loader`, by one statement."""
        if not keys:
            return {}
        bound = self._source.bound(keys)
        asked = datetime.now(UTC).timestamp() if self._stamped else 0.0
        result = await self._source.fetch(self._statement, bound, leaves)
        return self._matching.match(keys, bound, result, asked=asked)

    async def close(self) -> None:
        """The source outlives its loaders."""
