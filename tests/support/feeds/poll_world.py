"""The world of feeds that poll: a PostgreSQL or a file of SQLite with a table that says when a row has changed, and a Redis."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing

from cacheupdater.adapters.feed_marks_redis import RedisMarks
from cacheupdater.adapters.feed_poll import PollFeed, PollSettings, PollTable
from cacheupdater.adapters.loader_sql import SqlSource
from cacheupdater.feed_ports import Watched
from cacheupdater.local.postgres_server import run_sql
from feeds.memory_world import Rollback
from feeds.sql_rows import transaction_on

POSTGRES = (
    "CREATE TABLE items (id bigint PRIMARY KEY, shelf int NOT NULL, changed timestamptz NOT NULL DEFAULT now())",
    "CREATE INDEX ON items (changed, id)",
    "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.changed = now(); RETURN NEW; END'",
    "CREATE TRIGGER change BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION change()",
)
NOW = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
SQLITE = (
    f"CREATE TABLE items (id INTEGER PRIMARY KEY, shelf INTEGER NOT NULL, changed DATETIME NOT NULL DEFAULT ({NOW}))",
    "CREATE INDEX items_changed ON items (changed, id)",
    f"CREATE TRIGGER change AFTER UPDATE OF id, shelf ON items BEGIN UPDATE items SET changed = {NOW} WHERE id = NEW.id; END",
    "PRAGMA journal_mode = WAL",
)


class PollWorld:
    """One database. SQLite lets one transaction write at a time, so a transaction there has its statements at its end."""

    tells = frozenset()

    def __init__(self, url, redis_url):
        self.url, self.redis_url = url, redis_url
        self.is_file = url.startswith("sqlite")
        self.table = "items" if self.is_file else "public.items"
        table = PollTable(Watched("items", ("id", "shelf")), "changed", every=0.1)
        self.settings = PollSettings((table,), overlap=60.0)
        self.feeds = []

    async def start(self):
        if self.is_file:
            await asyncio.to_thread(self._write, [(each, ()) for each in SQLITE])
        else:
            await asyncio.to_thread(run_sql, self.url, *POSTGRES)
        return self

    def feed(self):
        source = SqlSource(self.url, pool_size=1, statement_timeout=5.0)
        self.feeds.append(PollFeed(source, RedisMarks(self.redis_url, "contract"), self.settings))
        return self.feeds[-1]

    def transaction(self):
        return self._file_transaction() if self.is_file else transaction_on(self.url)

    @asynccontextmanager
    async def _file_transaction(self):
        rows = FileRows()
        try:
            yield rows
        except Rollback:
            return
        await asyncio.to_thread(self._write, rows.statements)

    def _write(self, statements):
        with closing(sqlite3.connect(self.url.partition("///")[2], timeout=60)) as database:
            for statement, values in statements:
                database.execute(statement, values)
            database.commit()

    async def kill(self, feed):
        """As `kill -9`: nothing is given up, so the turn ends with its lease."""
        await feed._end_renewals()
        feed._sure = 0.0

    async def close(self):
        for each in self.feeds:
            await each.stop()


class FileRows:
    """The statements of one transaction in a file."""

    def __init__(self):
        self.statements = []

    async def insert(self, *ids):
        self.statements += [("INSERT INTO items (id, shelf) VALUES (?, 0)", (each,)) for each in ids]

    async def update(self, each, shelf):
        self.statements.append(("UPDATE items SET shelf = ? WHERE id = ?", (shelf, each)))
