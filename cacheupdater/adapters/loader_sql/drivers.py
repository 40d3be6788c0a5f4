"""The differences between databases: how to connect, how to select many keys at once, how to stop a statement, how they fail.

`SqlSource` picks one driver by the scheme of its address. A database without a driver of its own gets `Driver`, which relies
on SQLAlchemy. Drivers hold no state. An error's text may quote values of parameters or rows. So our errors give only its type,
its code and the text that `safe_errors` lets through.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote
from uuid import UUID

import msgspec
from sqlalchemy import ARRAY, BigInteger, String, Text, TupleType, Uuid, bindparam
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, StatementError

from cacheupdater.adapters.loader_sql import safe_errors
from cacheupdater.errors import Faulty, Misconfigured, TimedOut, Unavailable
from cacheupdater.postgres_words import does

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ssl import SSLContext

    from sqlalchemy import BindParameter
    from sqlalchemy.engine import URL, AdaptedConnection

    from cacheupdater.core.statements import Dialect
    from cacheupdater_client.protocol.patterns import Captures, CaptureType

# prepared statements per connection: one per namespace; thousands would cost the server memory
STATEMENTS_CACHED = 300


class Driver:
    """Any database that SQLAlchemy reaches without blocking, such as MySQL and MariaDB."""

    dialect: ClassVar[Dialect] = "mysql"
    # the widest types: a key beyond the range of its column then has no row, and does not fail its unit
    _TYPES: ClassVar[dict[CaptureType, type[BigInteger | String]]] = {
        int: BigInteger,
        str: String,
        UUID: String,
    }

    def address(self, url: URL) -> URL:
        """The URL of the same database, for our driver."""
        return url

    def arguments(self, statement_timeout: float, tls: SSLContext | None) -> dict[str, object]:  # noqa: ARG002  other drivers use it
        """The arguments of SQLAlchemy's engine: read-only if possible, with a deadline that the database enforces."""
        if tls is not None:  # these drivers continue in plain text if a server says that it has no TLS
            raise Misconfigured("tls: only PostgreSQL's driver guarantees that nothing is sent without TLS")
        return {"pool_pre_ping": True}  # one more round trip, as `alive` cannot know

    def condition(self, types: Sequence[CaptureType]) -> tuple[str, Sequence[BindParameter[Any]]]:
        """The text that replaces `IN :keys` in the statement, and its binds: a list that grows with the keys."""
        kinds = [self._TYPES[kind]() for kind in types]
        kind = kinds[0] if len(kinds) == 1 else TupleType(*kinds)
        return "IN :keys", [bindparam("keys", expanding=True, type_=kind)]

    def bound(self, keys: Sequence[Captures]) -> Sequence[Captures]:
        """The keys as the database holds and returns them: a UUID as its canonical text."""
        if not any(isinstance(part, UUID) for part in keys[0]):  # all keys have the types of the first
            return keys
        return [tuple(str(part) if isinstance(part, UUID) else part for part in key) for key in keys]

    def parameters(self, keys: Sequence[Captures]) -> Mapping[str, object]:
        """The values of the binds for these bound keys."""
        return {"keys": [key[0] for key in keys] if len(keys[0]) == 1 else keys}

    def alive(self, connection: AdaptedConnection) -> bool:  # noqa: ARG002  other drivers use it
        """False if the connection is known to be dead, without a request to the server."""
        return True

    def abort(self, connection: AdaptedConnection) -> None:
        """Stops the statement on the connection before SQLAlchemy closes it. Called inside SQLAlchemy's greenlet."""

    def outdated(self, error: BaseException) -> bool:  # noqa: ARG002  other drivers use it
        """Whether the statement failed because a table has changed since it was prepared."""
        return False

    def translated(self, error: BaseException, *, connecting: bool = False) -> Unavailable | Faulty:  # noqa: ARG002  other drivers use it
        """The error that says what the caller can do. The text of an unknown driver may quote anything, so it is left out."""
        own = _own(error)
        code = next((part for part in own.args[:1] if isinstance(part, int)), "")
        what = f"{type(error).__name__} {code}".strip()
        lost = isinstance(error, DBAPIError) and error.connection_invalidated
        if lost or isinstance(error, OperationalError | InterfaceError | OSError | EOFError):
            return Unavailable(f"the database cannot answer now: {what}")
        return Faulty(f"the database refuses this statement or its values: {what}")


class PostgreSql(Driver):
    """PostgreSQL, by asyncpg."""

    dialect = "postgresql"
    _ARRAYS: ClassVar[dict[CaptureType, type[BigInteger | Text | Uuid[UUID]]]] = {
        int: BigInteger,
        str: Text,
        UUID: Uuid,
    }
    _CANCELLED = "57014"  # by the statement timeout, or by a person
    # asyncpg raises this error, without a code, if the server has said its last word and the connection ends late
    _CONFUSED = "InternalClientError"
    # connection lost, out of resources, shutting down or cancelled, disk, serialization and deadlock, lock timeout,
    # wrong password or database: errors for which the keys of one unit are not to blame
    _UNAVAILABLE = ("08", "53", "57", "58", "40", "55P03", "28", "3D")

    def address(self, url: URL) -> URL:
        """With our number of prepared statements, unless the URL says one."""
        said = {"prepared_statement_cache_size": str(STATEMENTS_CACHED), **url.query}
        return url.set(drivername="postgresql+asyncpg", query=said)

    def arguments(self, statement_timeout: float, tls: SSLContext | None) -> dict[str, object]:
        settings = {
            "application_name": "cacheupdater",
            "statement_timeout": str(round(statement_timeout * 1000)),
            "default_transaction_read_only": "on",
            "jit": "off",  # compilation costs more than any lookup by key
        }
        arguments = {
            "connection_class": _curt(),
            "server_settings": settings,
            # always set, or asyncpg would read the environment, and continue in plain text if a server has no TLS
            "ssl": tls or False,
        }
        return {"connect_args": arguments, "json_deserializer": msgspec.json.decode}

    def condition(self, types: Sequence[CaptureType]) -> tuple[str, Sequence[BindParameter[Any]]]:
        """One array per capture, so that the text never changes and stays prepared."""
        binds = [bindparam(f"key{at}", type_=ARRAY(self._ARRAYS[kind]())) for at, kind in enumerate(types)]
        listed = ", ".join(f":{bind.key}" for bind in binds)
        several = f"IN (SELECT * FROM unnest({listed}))"  # noqa: S608  names of binds only
        return f"= ANY({listed})" if len(binds) == 1 else several, binds

    def bound(self, keys: Sequence[Captures]) -> Sequence[Captures]:
        return keys

    def parameters(self, keys: Sequence[Captures]) -> Mapping[str, object]:
        return {f"key{at}": list(column) for at, column in enumerate(zip(*keys, strict=True))}

    def alive(self, connection: AdaptedConnection) -> bool:
        return not connection.driver_connection.is_closed()

    def abort(self, connection: AdaptedConnection) -> None:
        connection.driver_connection.terminate()  # an orderly close would wait 2 s for a server that is gone

    def outdated(self, error: BaseException) -> bool:
        return type(_own(error)).__name__ == "InvalidCachedStatementError"

    def translated(self, error: BaseException, *, connecting: bool = False) -> Unavailable | Faulty:
        own = _own(error)
        if connecting and (why := safe_errors.of_tls(own)):
            return Unavailable(why)
        code = str(getattr(own, "sqlstate", None) or "")
        what = _what(own, code, safe_errors.of_postgres(own, code, connecting=connecting))
        # asyncpg has one type for a lost connection and for a value that it cannot send, and quotes the value
        gone = not isinstance(own, ValueError) and "connection" in str(own).lower()
        broken = isinstance(own, OSError | EOFError) or gone or type(own).__name__ == self._CONFUSED
        if code == self._CANCELLED and not connecting:
            return TimedOut(f"the database has ended the statement: {what}")
        if code.startswith(self._UNAVAILABLE) or (not code and broken):
            return Unavailable(f"the database {does(code)}: {what}")
        return Faulty(f"the database refuses this statement or its values: {what}")


class Sqlite(Driver):
    """SQLite, by aiosqlite, which runs a thread per connection."""

    dialect = "sqlite"
    _UNAVAILABLE = frozenset(
        {
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_NOMEM,
            sqlite3.SQLITE_INTERRUPT,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CORRUPT,
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_PROTOCOL,
            sqlite3.SQLITE_NOTADB,
        }
    )

    def address(self, url: URL) -> URL:
        """Opens only an existing file: a missing one is an error, and not a new, empty database."""
        if not url.database or url.database == ":memory:":
            raise Misconfigured(
                "an SQLite source needs a file: a database in memory belongs to one connection"
            )
        logging.getLogger("aiosqlite").setLevel(logging.INFO)  # its DEBUG prints parameters
        url = url.set(drivername="sqlite+aiosqlite")
        if url.database and not url.database.startswith("file:"):
            url = url.set(database=f"file:{quote(url.database)}")
        return url.update_query_dict({"mode": "ro", "uri": "true"})

    def arguments(self, statement_timeout: float, tls: SSLContext | None) -> dict[str, object]:  # noqa: ARG002  a file has no wire
        return {"connect_args": {"timeout": statement_timeout}}  # the longest wait for a lock

    def abort(self, connection: AdaptedConnection) -> None:
        connection.run_async(
            lambda raw: raw.interrupt()
        )  # otherwise its thread would run the statement to the end

    def translated(self, error: BaseException, *, connecting: bool = False) -> Unavailable | Faulty:  # noqa: ARG002  a file has no login
        own = _own(error)
        code = getattr(own, "sqlite_errorcode", 0)  # 0: the error is the sqlite3 module's own
        statement = (error.statement or "") if isinstance(error, StatementError) else ""
        text = safe_errors.of_sqlite(own, statement) if isinstance(own, sqlite3.Error) else ""
        what = _what(own, getattr(own, "sqlite_errorname", ""), text)
        if code & 0xFF in self._UNAVAILABLE:
            return Unavailable(f"the database cannot answer now: {what}")
        return Faulty(f"the database refuses this statement or its values: {what}")


def _curt() -> type[object]:
    """The connection of asyncpg, but it says no farewell to a server that may be silent."""
    from asyncpg import Connection  # noqa: PLC0415  sources of other databases do without asyncpg

    class Curt(Connection):
        async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109  the driver's signature
            """SQLAlchemy gives a timeout, of 2 s, exactly where it gives a connection up."""
            if timeout is None:
                await super().close()
            else:
                self.terminate()

    return Curt


def _own(error: BaseException) -> BaseException:
    """The driver's own error, which SQLAlchemy and its adapter to the driver have wrapped."""
    if isinstance(error, StatementError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


def _what(error: BaseException, code: str, text: str) -> str:
    """The description of an error, such as `UndefinedTableError 42P01: relation "products" does not exist`."""
    return f"{type(error).__name__} {code}".strip() + (f": {text}" if text else "")
