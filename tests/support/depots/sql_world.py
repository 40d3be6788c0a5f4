"""A depot in a real PostgreSQL or a file of SQLite, seen by several processes' connections. Time passes by making sessions older."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.core import depot_url
from cacheupdater.local.postgres_server import run_sql
from depots.world import World


class SqlWorld(World):
    """The tables of one address. `run` is for what no depot does."""

    def __init__(self, url, *, partitions=3, options=""):
        super().__init__(partitions)
        self.base = url
        joint = "&" if "?" in url else "?"
        self.url = f"{url}{joint}partitions={partitions}{options}"
        self.address = depot_url.parse(self.url)

    def _made(self):
        return depot_at(depot_url.parse(self.url))

    def run(self, statement):
        """Runs a statement. `{}` in it stands for the beginning of a table's name."""
        if not self.address.path:
            run_sql(self.base, statement.replace("{}", f"{self.address.table}_"))
            return
        with closing(sqlite3.connect(self.address.path)) as connection:
            connection.execute(statement.replace("{}", ""))
            connection.commit()

    async def pass_time(self, seconds):
        age = f"{seconds}" if self.address.path else f"interval '{seconds} s'"
        self.run(f"UPDATE {{}}members SET expires = expires - {age}")
