"""What differs between databases: how they are reached, asked for many keys at once, stopped, and how they fail.

`SqlSource` picks one driver by its address. Drivers hold no state. The statement goes to asyncpg or sqlite3 as it is,
on a connection out of SQLAlchemy's pool: half the cost per row of SQLAlchemy's own cursor and row objects.
A driver's text may quote values of parameters or rows, so an error keeps it only where it speaks of the statement.
"""

from __future__ import annotations

import logging
import sqlite3
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias
from urllib.parse import quote
from uuid import UUID

from cacheupdater.errors import Faulty, Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import URL

    from cacheupdater.core.keyspace import Captures, CaptureType

STATEMENTS_CACHED = (
    300  # prepared per connection: one per namespace, and thousands would cost the server memory
)

Parts: TypeAlias = "tuple[str, ...]"  # the statement, cut where the condition on the keys goes
Rows: TypeAlias = (
    "tuple[Sequence[str], Sequence[Any]]"  # column names (may be empty if no row came), rows by position
)


class Driver(Protocol):
    """One kind of database."""

    def address(self, url: URL) -> URL:
        """The same database, for our driver."""
        ...

    def arguments(self, statement_timeout: float) -> dict[str, object]:
        """How a connection is opened: read-only where possible, with the database's own deadline."""
        ...

    def bound(self, keys: Sequence[Captures]) -> Sequence[Captures]:
        """The keys as the database holds them."""
        ...

    async def run(
        self, connection: Any, parts: Parts, types: Sequence[CaptureType], keys: Sequence[Captures]
    ) -> Rows:
        """The rows of these bound keys."""
        ...

    def closed(self, connection: Any) -> bool:
        """Whether the connection is known to be dead, without asking the server."""
        ...

    async def abort(self, connection: Any) -> None:
        """Ends what runs on the connection; it is thrown away afterwards."""
        ...

    def translated(self, error: BaseException) -> Unavailable | Faulty:
        """What the caller can do about an error of the driver."""
        ...


class PostgreSql:
    """asyncpg."""

    # the widest types: a key beyond an int4 column then has no row instead of failing its unit
    _ARRAYS: ClassVar[dict[CaptureType, str]] = {int: "bigint[]", str: "text[]", UUID: "uuid[]"}
    # connection lost, out of resources, shutting down or cancelled, disk, serialization and deadlock, lock timeout,
    # wrong password or database: nothing that the keys of one unit are to blame for
    _UNAVAILABLE = ("08", "53", "57", "58", "40", "55P03", "28", "3D")
    _SPEAKS_OF_STATEMENT = (
        "42",
        "28",
        "3D",
        "57",
        "08",
        "53",
    )  # texts that hold no values of rows or parameters

    def address(self, url: URL) -> URL:
        return url.set(drivername="postgresql+asyncpg")

    def arguments(self, statement_timeout: float) -> dict[str, object]:
        settings = {
            "application_name": "cacheupdater",
            "statement_timeout": str(round(statement_timeout * 1000)),
            "default_transaction_read_only": "on",
            "jit": "off",  # compiling costs more than any lookup by key
        }
        return {"server_settings": settings, "statement_cache_size": STATEMENTS_CACHED}

    def bound(self, keys: Sequence[Captures]) -> Sequence[Captures]:
        return keys

    async def run(
        self, connection: Any, parts: Parts, types: Sequence[CaptureType], keys: Sequence[Captures]
    ) -> Rows:
        """One array per capture, so that the text never varies and stays prepared."""
        arrays = [f"${at}::{self._ARRAYS[kind]}" for at, kind in enumerate(types, start=1)]
        several = f"IN (SELECT * FROM unnest({', '.join(arrays)}))"  # noqa: S608  names of types only
        text = (f"= ANY({arrays[0]})" if len(arrays) == 1 else several).join(parts)
        rows = await connection.fetch(text, *map(list, zip(*keys, strict=True)))
        return (tuple(rows[0].keys()) if rows else ()), rows

    def closed(self, connection: Any) -> bool:
        return bool(connection.is_closed())

    async def abort(self, connection: Any) -> None:
        connection.terminate()

    def translated(self, error: BaseException) -> Unavailable | Faulty:
        code = str(getattr(error, "sqlstate", None) or "")
        what = f"{type(error).__name__} {code}".strip()
        if code.startswith(self._SPEAKS_OF_STATEMENT):
            what += f": {error.args[0]}"
        broken = isinstance(error, OSError | EOFError) or "connection" in str(error).lower()
        if code.startswith(self._UNAVAILABLE) or (not code and broken):
            return Unavailable(f"the database cannot answer now: {what}")
        return Faulty(f"the database refuses this statement or its values: {what}")


class Sqlite:
    """aiosqlite: a thread per connection."""

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
        """Opens what exists: a missing file is an error and not a new, empty database."""
        if not url.database or url.database == ":memory:":
            raise Misconfigured(
                "an SQLite source needs a file: a database in memory belongs to one connection"
            )
        logging.getLogger("aiosqlite").setLevel(logging.INFO)  # its DEBUG prints parameters
        url = url.set(drivername="sqlite+aiosqlite")
        if url.database and not url.database.startswith("file:"):
            url = url.set(database=f"file:{quote(url.database)}")
        return url.update_query_dict({"mode": "ro", "uri": "true"})

    def arguments(self, statement_timeout: float) -> dict[str, object]:
        return {"timeout": statement_timeout}  # how long to wait for a lock

    def bound(self, keys: Sequence[Captures]) -> Sequence[Captures]:
        """SQLite knows no UUID: such a column holds its canonical text."""
        return [tuple(str(part) if isinstance(part, UUID) else part for part in key) for key in keys]

    async def run(
        self, connection: Any, parts: Parts, types: Sequence[CaptureType], keys: Sequence[Captures]
    ) -> Rows:
        """A list of as many values as there are keys: SQLite knows no arrays."""
        listed = ", ".join(["?" if len(types) == 1 else f"({', '.join('?' * len(types))})"] * len(keys))
        condition = f"IN ({listed})" if len(types) == 1 else f"IN (VALUES {listed})"
        values = list(chain.from_iterable(keys)) * (len(parts) - 1)
        cursor = await connection.execute(condition.join(parts), values)
        rows = await cursor.fetchall()
        return tuple(column[0] for column in cursor.description or ()), rows

    def closed(self, connection: Any) -> bool:  # noqa: ARG002
        return False

    async def abort(self, connection: Any) -> None:
        await connection.interrupt()
        await connection.close()  # its thread is free again and ends; a wait for a lock ends by `timeout`

    def translated(self, error: BaseException) -> Unavailable | Faulty:
        code = getattr(error, "sqlite_errorcode", 0)  # 0: the error is the sqlite3 module's own
        text = (
            f"{type(error).__name__}: {error}" if isinstance(error, sqlite3.Error) else type(error).__name__
        )
        if code & 0xFF in self._UNAVAILABLE:
            return Unavailable(f"the database cannot answer now: {text}")
        return Faulty(f"the database refuses this statement or its values: {text}")
