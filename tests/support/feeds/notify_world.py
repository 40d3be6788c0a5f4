"""The world of feeds with an outbox: a PostgreSQL with a table and its triggers."""

from __future__ import annotations

import asyncpg

from cacheupdater.adapters.feed_notify import NotifyFeed, NotifyInstallation, NotifySettings
from cacheupdater.feed_ports import Watched
from feeds.sql_rows import transaction_on

TABLE = "CREATE TABLE items (id bigint PRIMARY KEY, shelf int NOT NULL, note text)"


class NotifyWorld:
    """One database. `run` is for what no feed does."""

    table = "public.items"
    tells = frozenset({"deletes", "truncates", "old keys", "nothing twice"})

    def __init__(self, url, *watched):
        self.url = url
        self.settings = NotifySettings(url, watched or (Watched("items", ("id", "shelf")),))
        self.installation = NotifyInstallation(self.settings)
        self.feeds = []

    async def start(self):
        await self.run(TABLE)
        await self.installation.install()
        return self

    def feed(self):
        self.feeds.append(NotifyFeed(self.settings))
        return self.feeds[-1]

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
        feed._connection.terminate()

    async def close(self):
        for each in self.feeds:
            await each.stop()
