"""The fake's world for the contract of feeds: one log, and the tables of the tests in it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

from cacheupdater.testing.memory_feed import MemoryFeed, MemoryLog


class Rollback(Exception):
    """Ends a transaction of a world without its commit."""


class _Rows:
    """The statements of one transaction on the table of the tests: `items (id, shelf)`."""

    def __init__(self, transaction, table):
        self._transaction, self._table = transaction, table

    async def insert(self, *ids):
        for each in ids:
            self._transaction.change(self._table, {"id": each, "shelf": 0})

    async def update(self, each, shelf):
        self._transaction.change(self._table, {"id": each, "shelf": shelf})

    async def rekey(self, old, new):
        self._transaction.change(self._table, {"id": old}, {"id": new, "shelf": 0})

    async def delete(self, each):
        self._transaction.change(self._table, {"id": each})

    async def truncate(self):
        self._transaction.truncate(self._table)


class MemoryWorld:
    """One source with a table, outside of the processes that read its feed."""

    table = "public.items"
    tells = frozenset({"deletes", "truncates", "old keys", "losses", "nothing twice"})

    def __init__(self):
        self.log = MemoryLog()

    async def start(self):
        return self

    def feed(self):
        return MemoryFeed(self.log, [self.table], events_max=100)

    @asynccontextmanager
    async def transaction(self):
        with suppress(Rollback), self.log.transaction() as transaction:
            yield _Rows(transaction, self.table)

    async def kill(self, feed):
        """As `kill -9` of the process with this feed."""
        feed.lost()

    async def lose(self):
        self.log.lose("the place in the log was dropped")

    async def close(self):
        """Nothing is open."""
