"""A shop whose rows are changed by plain SQL, and nobody announces anything: rows, readers, and the truth.

Tests make one `FedShop` for a database and a Redis. Its hot products are read all the time, through our client. `stale` compares every
value in Redis with its row. Tables keep `updated_at` by a trigger, as the feed `poll` needs it.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time

import asyncpg
import redis

from cacheupdater.adapters.writer_redis import writer_for
from cacheupdater.ports import Entry
from cacheupdater_client import Redis
from live.updater_process import eventually

PRODUCTS = 20_000
BRANDS = 20
HOT = range(1, 51)
CACHED = range(1, 1001)
READ_EVERY_S = 0.05  # each hot key
TTL_MS = 7_200_000  # as in the configuration
EVERY_S = 5.0  # the interval of refreshes, which nothing but the feed can beat
TRUTH = (
    "SELECT p.id, p.name, p.price, s.pieces, b.name AS brand FROM products p"
    " JOIN stock s ON s.product_id = p.id JOIN brands b ON b.id = p.brand_id"
)
SQL = f"{TRUTH} WHERE p.id IN :id"
_STAMP = "updated_at timestamptz NOT NULL DEFAULT clock_timestamp()"
_OLD = (
    "now() - interval '1 day'"  # a feed that polls tells what was changed within its overlap before it began
)
TABLES = (
    f"CREATE TABLE brands (id int PRIMARY KEY, name text NOT NULL, {_STAMP})",
    f"CREATE TABLE products (id int PRIMARY KEY, brand_id int NOT NULL, name text NOT NULL, price int NOT NULL, {_STAMP})",
    f"CREATE TABLE stock (product_id int PRIMARY KEY, pieces int NOT NULL, {_STAMP})",
    """CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
       $$BEGIN NEW.updated_at := clock_timestamp(); RETURN NEW; END$$""",
    *(
        f"CREATE TRIGGER stamped BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION stamp()"
        for table in ("brands", "products", "stock")
    ),
    *(f"CREATE INDEX ON {table} (updated_at)" for table in ("brands", "products", "stock")),
    f"INSERT INTO brands SELECT i, 'brand ' || i, {_OLD} FROM generate_series(1, {BRANDS}) i",
    f"INSERT INTO products SELECT i, 1 + i % {BRANDS}, 'product ' || i, 1, {_OLD} FROM generate_series(1, {PRODUCTS}) i",
    f"INSERT INTO stock SELECT i, 5, {_OLD} FROM generate_series(1, {PRODUCTS}) i",
)


def key(number):
    return f"product:{number}"


def settings(redis_url, database, feed, *, queue=None, budget="500/s"):
    """The configuration of an updater that this feed tells of changes."""
    column = {"column": "updated_at"} if "poll" in feed else {}
    changes = [
        {"table": "products"},
        {"table": "stock", "key": {"id": "product_id"}},
        {"table": "brands", "sql": "SELECT id FROM products WHERE brand_id IN :id"},
    ]
    return {
        "version": 1,
        "queue": queue or {"url": "memory://"},
        "cache": {"url": redis_url},
        "sources": {"shop": {"url": database, "budget": budget, "changes": feed}},
        "namespaces": {
            "product": {
                "key": "product:{id:int}",
                "load": {"source": "shop", "sql": SQL},
                "changes": [{**each, **column} for each in changes],
                "refresh": {"every": f"{EVERY_S:g}s"},
                "ttl": "2h",
            }
        },
    }


class FedShop:
    """The database, the cache, and the readers of the hot products."""

    def __init__(self, database, redis_url, emit, *, cached=CACHED):
        self.cached = cached
        self._database = database.replace("+asyncpg", "")
        self._redis_url = redis_url
        self.plain = redis.Redis.from_url(redis_url)
        self._cache = Redis.from_url(redis_url, emit=emit)
        self._stop = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.set()
        if self._reading.is_alive():
            self._reading.join()
        self._cache.close()
        self.plain.close()

    def run(self, *statements, user=None):
        """Runs statements, each in a transaction of its own, as this user."""
        asyncio.run(self._run(statements, user))

    async def _run(self, statements, user):
        connection = await asyncpg.connect(self._database, **({"user": user} if user else {}))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    def fill(self):
        """Values of the first products, as an updater has written them; then the hot ones are read all the time."""
        asyncio.run(self._fill())
        self._reading.start()

    async def _fill(self):
        rows = await self._fetch(TRUTH)
        values = {row["id"]: json.dumps(dict(row), separators=(",", ":")).encode() for row in rows}
        entries = [Entry(key(n).encode(), values[n], TTL_MS) for n in self.cached]
        writer = writer_for(self._redis_url)
        try:
            for at in range(0, len(entries), 1000):
                await writer.write(await writer.token(), entries[at : at + 1000], form="json")
        finally:
            await writer.close()

    def is_read(self, updater):
        """Waits until the hot products count as being read, and no others."""
        eventually(lambda: updater.metric("tracked") == len(HOT))

    def _read(self):
        while not self._stop.wait(READ_EVERY_S):
            for number in HOT:
                self._cache.get(key(number))

    def stale(self):
        """Keys whose value is not their row, with the value."""
        rows = {row["id"]: dict(row) for row in asyncio.run(self._fetch(TRUTH))}
        names = list(self.plain.scan_iter("product:*", count=1000))
        values = dict(zip(names, self.plain.mget(names), strict=True)) if names else {}
        return {
            name: value
            for name, value in values.items()
            if value is not None and json.loads(value) != rows.get(int(name.partition(b":")[2]))
        }

    async def _fetch(self, statement):
        connection = await asyncpg.connect(self._database)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    def fetch(self, statement):
        return asyncio.run(self._fetch(statement))

    def at_rest(self, within=60.0):
        """Waits until no value is stale. Returns how long that took."""
        began = time.monotonic()
        while stale := self.stale():
            assert time.monotonic() < began + within, (
                f"{len(stale)} stale values, such as {list(stale.items())[:3]}"
            )
        return time.monotonic() - began

    def there(self, numbers):
        """Those of these products that have a value."""
        values = self.plain.mget([key(number) for number in numbers])
        return [number for number, value in zip(numbers, values, strict=True) if value is not None]
