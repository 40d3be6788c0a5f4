"""The connections of a depot to its PostgreSQL, and the bell that rings when packs have come.

`PostgresDepot` makes one `Server` and one `Bell`. A call takes a connection, and gives it back only after the server has answered
all of the call. Any other end (an error, a time limit, a cancelled caller) cuts the connection off, and the server undoes what was
not committed. So nothing of one call is ever left on a connection for the next.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from cacheupdater.adapters.depot_sql.failures import of_postgres
from cacheupdater.encryption import Tls, context
from cacheupdater.errors import CacheUpdaterError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cacheupdater.core.depot_url import Address

    Connection = asyncpg.Connection[asyncpg.Record]

CONNECTIONS_MAX = 4  # of one process at a time, besides the bell's: renewal, reading, commits, a put
CONNECT_S = 5.0  # seconds until a server that does not answer counts as away
CALL_S = 10.0  # seconds for one call; the queue waits for less
# Seconds after which the server ends a transaction whose process was stopped in the middle: its locks must not hold up the others
IDLE_S = 2.0
AWAY_S = 0.2  # seconds of rest if the bell has no connection
FAREWELL_S = 1.0  # seconds for an orderly end of all connections
# InternalClientError is no InterfaceError. It comes if the server has said its last word, and the end of the connection is late
_FOREIGN = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


class Server:
    """The server of one address, as one process uses it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = context(Tls(address.tls, address.ca))
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for one call: each statement is a transaction of its own."""
        try:
            async with asyncio.timeout(CALL_S), self._room:
                connection = await self._taken()
                try:
                    yield connection
                except BaseException:
                    connection.terminate()
                    raise
                self._idle.append(connection)
        except _FOREIGN as e:
            self._drop_idle()  # they may have ended as this one has
            raise of_postgres(e, self._address) from None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection for one transaction."""
        async with self.connection() as connection:
            await connection.execute("BEGIN")
            yield connection
            await connection.execute("COMMIT")

    async def _taken(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self.connected()

    async def connected(self) -> Connection:
        """A new connection."""
        settings = {
            "application_name": "cacheupdater",
            "default_transaction_isolation": "read committed",  # a lock shows what was committed meanwhile
            "default_transaction_read_only": "off",
            "statement_timeout": str(round(CALL_S * 1000)),
            "idle_in_transaction_session_timeout": str(round(IDLE_S * 1000)),
            "jit": "off",  # compilation costs more than any of our statements
        }
        return await asyncpg.connect(
            self._address.url, ssl=self._tls or False, timeout=CONNECT_S, server_settings=settings
        )

    def _drop_idle(self) -> None:
        for connection in self._idle:
            connection.terminate()
        self._idle.clear()

    async def close(self) -> None:
        """Says farewell to the server, if it listens."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await _ended(connection)


class Bell:
    """Rings when packs have come: a connection that listens, opened by the first wait."""

    def __init__(self, server: Server, channel: str) -> None:
        self._server = server
        self._channel = channel
        self._rung = asyncio.Event()
        self._connection: Connection | None = None

    async def wait(self, seconds: float) -> None:
        """Returns at the next ring, or if it has rung since the last wait ended; at the latest after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                if self._connection is None or self._connection.is_closed():
                    await self._listen()
                await self._rung.wait()
        except TimeoutError:
            pass
        except (CacheUpdaterError, *_FOREIGN):
            await asyncio.sleep(min(seconds, AWAY_S))  # the next call tells
        self._rung.clear()

    async def _listen(self) -> None:
        self._connection = None
        connection = await self._server.connected()
        try:
            await connection.add_listener(self._channel, self._ring)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self._rung.set()  # for what came before anybody listened

    def _ring(self, *_: Any) -> None:
        self._rung.set()

    async def close(self) -> None:
        """Listens no more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await _ended(connection)


async def _ended(connection: Connection) -> None:
    with suppress(*_FOREIGN):
        await connection.close(timeout=FAREWELL_S)
    connection.terminate()
