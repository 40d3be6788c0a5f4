"""The feed `notify`: changes of rows that triggers of PostgreSQL write into an outbox, whoever changes them.

`feeds.reader` reads one `NotifyFeed` per source, on one connection: an advisory lock on it is the turn, so a reader that dies
gives the turn back with its connection. The connection listens, and a look each second stands in for a ring that was lost.

Rows of the outbox are read in the order of their ids, and confirmed rows are deleted. A transaction may commit with smaller ids than
were read already, so no cursor passes over ids: each look begins at the smallest. But dead rows lie there until a vacuum. So a
look begins behind the ids that were given before the oldest transaction which still runs. All of these are visible, or never come.

While no reader lives, the outbox grows: by one row for each statement, some 200 bytes, or for each 50 changes of a larger
one. That is 1.7 GB a day at 100 statements/s. Nothing limits it, for a trigger that counts would cost each write. `waiting` tells
the rows; whoever drops the feed removes the triggers.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_notify import catalogue
from cacheupdater.adapters.feed_notify.failures import FOREIGN, of_server
from cacheupdater.adapters.feed_notify.outbox import CHANNEL, outbox_of
from cacheupdater.adapters.feed_notify.rows import Floor, Ledger, Line
from cacheupdater.adapters.feed_notify.settings import connected
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.feed_ports import SILENCE_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cacheupdater.adapters.feed_notify.catalogue import Found
    from cacheupdater.adapters.feed_notify.settings import Connection, NotifySettings
    from cacheupdater.feed_ports import Batch, Position, Watched

TURN_S = 0.5  # seconds between two tries to take the turn
LOOK_S = 1.0  # seconds between two looks without a ring: for rings that were lost, and servers where none is allowed
SPEAK_S = SILENCE_MAX / 3  # an empty batch after so many seconds
LINES_MAX = 200  # rows of the outbox that one look reads: at most 10,000 changes, some MB
OPEN_MAX = 2000  # rows that wait for their confirmation; no more are read meanwhile
COUNTED_MAX = 1_000_000  # rows that `waiting` counts, in a tenth of a second
FAREWELL_S = 1.0  # seconds for an orderly end of the connection


class NotifyFeed:
    """The changes of the watched tables of one database."""

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        self._outbox = outbox_of(settings.outbox)
        self._connection: Connection | None = None
        self._calls = asyncio.Lock()  # asyncpg runs one statement at a time
        self._rung = asyncio.Event()
        self._stopped = asyncio.Event()
        self._ledger = Ledger({})
        self._floor = Floor()

    # --- the port -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """As the port says."""
        await self.stop()
        self._stopped.clear()
        connection = await connected(self._settings)
        try:
            await self._take_turn(connection)
            await self._prepare(connection)
        except FOREIGN as e:
            connection.terminate()
            raise of_server(e) from None
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    async def batches(self) -> AsyncIterator[Batch]:
        """As the port says."""
        loop = asyncio.get_running_loop()
        spoke = loop.time()
        while self._connection is not None:
            self._rung.clear()
            lines, more = await self._look()
            for batch in self._ledger.batches(lines):
                spoke = loop.time()
                yield batch
            if not lines and loop.time() - spoke >= SPEAK_S:
                spoke = loop.time()
                yield self._ledger.quiet()
            if not more:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._rung.wait()

    async def confirm(self, position: Position) -> None:
        """As the port says."""
        ids = self._ledger.confirmed(position)
        if ids:
            async with self._call() as connection:
                await connection.execute(self._outbox.delete, ids)
            self._ledger.deleted(ids)
            self._rung.set()  # there may be room again

    async def waiting(self) -> int | None:
        """As the port says: rows of the outbox, not of the tables."""
        if self._connection is None:
            return None
        async with self._call() as connection:
            counted: int = await connection.fetchval(self._outbox.counted, COUNTED_MAX)
        return counted

    async def stop(self) -> None:
        """As the port says."""
        connection, self._connection = self._connection, None
        self._stopped.set()
        self._rung.set()
        if connection is None:
            return
        with suppress(*FOREIGN):
            await connection.close(timeout=FAREWELL_S)
        connection.terminate()

    # --- the connection -------------------------------------------------------------------------------

    async def _take_turn(self, connection: Connection) -> None:
        """A lock that waits would be a statement for hours, and hold up every vacuum."""
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", self._outbox.lock):
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_S):
                    await self._stopped.wait()
                raise Unavailable("the feed was stopped while it waited for its turn")

    async def _prepare(self, connection: Connection) -> None:
        tables = [await _found(connection, each) for each in self._settings.watched]
        there = await catalogue.state(connection, self._outbox)
        if not there.there:
            raise Misconfigured(
                f"there is no outbox {self._outbox.table}: run `cacheupdater changes install`"
            )
        for table in tables:
            if events := there.untold(self._outbox, table.target):
                raise Misconfigured(
                    f"{table.target.name} has no trigger that tells of {', '.join(events)}: run `cacheupdater changes install`"
                )
        await connection.add_listener(CHANNEL, lambda *_: self._rung.set())
        connection.add_termination_listener(lambda *_: self._rung.set())
        if self._stopped.is_set():  # `stop` has not seen this connection, which holds the turn
            raise Unavailable("the feed was stopped while it started")
        self._ledger = Ledger({each.target.name: each.types for each in tables})
        self._floor = Floor()

    @asynccontextmanager
    async def _call(self) -> AsyncIterator[Connection]:
        async with self._calls:
            connection = self._connection
            if connection is None or connection.is_closed():
                raise Unavailable("the connection of the feed was lost")
            try:
                yield connection
            except FOREIGN as e:
                raise of_server(e) from None

    async def _look(self) -> tuple[Sequence[Line], bool]:
        """New rows, and whether there are more."""
        open_ = len(self._ledger.open)
        if open_ >= OPEN_MAX:
            return (), False
        limit = open_ + LINES_MAX
        async with self._call() as connection:
            rows = await connection.fetch(self._outbox.read, self._floor.id, limit)
        if rows:
            self._floor.read(rows[-1][0], oldest=rows[0][4], following=rows[0][5])
        lines = [Line(*row[:4]) for row in map(tuple, rows) if row[0] not in self._ledger.open]
        return lines, len(rows) == limit


async def _found(connection: Connection, watched: Watched) -> Found:
    found = await catalogue.table(connection, watched)
    if found is None:
        raise Misconfigured(f"there is no table {watched.table}, or this user may not see it")
    return found
