"""An application's transactions on the table of the tests, `items (id, shelf)`, in a real PostgreSQL."""

from __future__ import annotations

from contextlib import asynccontextmanager

import asyncpg

from feeds.memory_world import Rollback


class SqlRows:
    """The statements of one transaction."""

    def __init__(self, connection):
        self.connection = connection

    async def insert(self, *ids):
        await self.connection.execute("INSERT INTO items SELECT unnest($1::bigint[]), 0", ids)

    async def update(self, each, shelf):
        await self.connection.execute("UPDATE items SET shelf = $2 WHERE id = $1", each, shelf)

    async def rekey(self, old, new):
        await self.connection.execute("UPDATE items SET id = $2 WHERE id = $1", old, new)

    async def delete(self, each):
        await self.connection.execute("DELETE FROM items WHERE id = $1", each)

    async def truncate(self):
        await self.connection.execute("TRUNCATE items")


@asynccontextmanager
async def transaction_on(url):
    """A transaction on a connection of its own. `Rollback` in the block undoes it."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        begun = connection.transaction()
        await begun.start()
        try:
            yield SqlRows(connection)
        except Rollback:
            await begun.rollback()
        else:
            await begun.commit()
    finally:
        await connection.close()
