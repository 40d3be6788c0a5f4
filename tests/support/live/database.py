"""The tests' own connection to PostgreSQL, as a plain synchronous object; one per thread.

The updater under test has its own. Nothing here is shared with it.
"""

from __future__ import annotations

import asyncio

import asyncpg


class Database:
    """Statements run in autocommit unless they are given together."""

    def __init__(self, url):
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(asyncpg.connect(url.replace("+asyncpg", ""), timeout=60))

    def execute(self, sql, *arguments):
        self._runner.run(self._connection.execute(sql, *arguments))

    def rows(self, sql, *arguments):
        return self._runner.run(self._connection.fetch(sql, *arguments))

    def value(self, sql, *arguments):
        return self._runner.run(self._connection.fetchval(sql, *arguments))

    def close(self):
        self._connection.terminate()
        self._runner.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
