"""Shared by the benchmarks with real servers: cores, servers, an updater, rows, and keys.

Servers run on the first core and the measured program on the last, so that neither's work is counted as the other's. On a
machine with one core, everything runs there. A server inherits its core from this process at its start.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from cacheupdater.cli.serve import GC_OBJECTS
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


def collect_as_the_updater():
    """Sets the collector. Python's own setting looks at all objects now and then, and that would count for whoever runs then."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS)


def pin(core):
    """Pins this process, and the processes that it starts from now on, to the first or the last core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(_CORES)[core]})


_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


@contextmanager
def servers(postgres=None, further=()):
    """PostgreSQL with 100,000 rows of some 230 bytes, and an empty Redis. Starts them on their core, then moves to ours.

    `postgres` is another server than the usual one, and `further` are statements after those that make the rows.
    """
    pin(0)
    postgres = postgres or PostgresServer()
    try:
        postgres.start()
        postgres.execute(*_TABLE, *further)
        with RedisServer() as redis:
            pin(-1)
            yield postgres.url(), redis.url
    finally:
        postgres.remove()


@contextmanager
def updater(config, folder):
    """An updater process with this configuration, on our core. This process then moves to the servers' core: it is the application."""
    file = Path(folder, "cacheupdater.yaml")
    file.write_text(config)
    process = subprocess.Popen(
        [sys.executable, "-m", "cacheupdater", "run", "-c", str(file), "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
    )
    pin(0)
    try:
        assert process.stdout.readline().startswith("ready"), "the updater does not start"
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)
