"""The world of replication feeds: a PostgreSQL with a table, a publication and a slot."""

from __future__ import annotations

import asyncio

import asyncpg

from cacheupdater.adapters.feed_replication import ReplicationFeed, ReplicationInstallation, Settings
from cacheupdater.feed_ports import Watched
from feeds.sql_rows import transaction_on

TABLE = "CREATE TABLE items (id bigint PRIMARY KEY, shelf int NOT NULL, note text)"


class ReplicationWorld:
    """One database. `run` is for what no feed does."""

    table = "public.items"
    tells = frozenset({"deletes", "truncates", "old keys", "losses", "nothing twice"})

    def __init__(self, url, *watched):
        self.url = url
        slot = url.rpartition("/")[2].partition("?")[0]  # slots belong to the whole server
        watched = watched or (Watched("items", ("id", "shelf")),)
        self.settings = Settings(url, "cacheupdater", slot, watched)

    async def start(self):
        await self.run(TABLE)
        installation = ReplicationInstallation(self.settings)
        await installation.install()
        await installation.close()
        return self

    def feed(self):
        return ReplicationFeed(self.settings)

    def transaction(self):
        return transaction_on(self.url)

    async def run(self, *statements):
        """The rows of the last statement."""
        connection = await asyncpg.connect(self.url.replace("+asyncpg", ""))
        try:
            for statement in statements:
                rows = await connection.fetch(statement)
        finally:
            await connection.close()
        return rows

    async def kill(self, feed):
        """As the kernel ends the connections of a process that was killed."""
        feed._stream._connection.close()

    async def lose(self):
        """The slot goes. A reader may have taken it again before it can be dropped, so each try ends the reader first."""
        slot = self.settings.slot
        end = f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{slot}'"
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.run(end, f"SELECT pg_drop_replication_slot('{slot}')")
                except asyncpg.ObjectInUseError:
                    await asyncio.sleep(0.01)

    async def close(self):
        """The fixture of the database drops it, and the slot with it."""
