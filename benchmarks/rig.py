"""What the benchmarks with real servers share: cores, servers, rows, and keys.

Servers take the first core and the measured program the last, so that neither's work is counted as the other's; on a
machine of one core everything runs there. A server inherits its core from us while it is started.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from cacheupdater.local.postgres_server import PostgresServer
from cacheupdater.local.redis_server import RedisServer

ROWS = 100_000
PATTERN = "item:{id:int}"
SQL = "SELECT id, name, price, note FROM items WHERE id IN :id"
_TABLE = (
    "CREATE TABLE items (id bigint PRIMARY KEY, name text NOT NULL, price int NOT NULL, note text NOT NULL)",
    f"INSERT INTO items SELECT i, 'item ' || i, i % 1000, repeat(md5(i::text), 6) FROM generate_series(1, {ROWS}) i",
    "VACUUM ANALYZE items",
)


def pin(core):
    """This process, and what it starts from now on, stays on the first or the last core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(_CORES)[core]})


_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


@contextmanager
def servers():
    """PostgreSQL with 100,000 rows of some 230 bytes, and an empty Redis; their core, then ours."""
    pin(0)
    postgres = PostgresServer()
    try:
        postgres.start()
        postgres.execute(*_TABLE)
        with RedisServer() as redis:
            pin(-1)
            yield postgres.url(), redis.url
    finally:
        postgres.remove()
