"""One statement changes a million rows, and nobody is hurt: other namespaces keep their pace, and memory stays within its bounds."""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time

import psutil
import psycopg2
import pytest
import redis
from live.updater_process import eventually

from cacheupdater.adapters.writer_redis import writer_for
from cacheupdater.ports import Entry
from cacheupdater_client import Redis

pytestmark = [pytest.mark.live, pytest.mark.prove, pytest.mark.timeout(1200)]

ROWS = 1_000_000
CACHED = 100_000
OTHERS = 500
READ_EVERY_S = 0.1  # all others: 5,000 reads a second
PROBE_EVERY_S = 0.1
QUIET_S = 60.0
LOOK_EVERY_S = 0.5
UPDATER_MIB = 100
REDIS_MIB = 50
FLOOD = "UPDATE items SET price = price + 1"
TABLES = (
    "CREATE TABLE items (id int PRIMARY KEY, price int NOT NULL)",
    f"INSERT INTO items SELECT i, 1 FROM generate_series(1, {ROWS}) i",
    "CREATE TABLE others (id int PRIMARY KEY, price int NOT NULL)",
    f"INSERT INTO others SELECT i, 1 FROM generate_series(1, {OTHERS}) i",
    "VACUUM ANALYZE",
)


def settings(redis_url, database):
    load = {"source": "shop"}
    return {
        "version": 1,
        "queue": {"url": "memory://"},
        "cache": {"url": redis_url},
        "sources": {"shop": {"url": database, "budget": "1000/s", "changes": "replication"}},
        "namespaces": {
            "item": {"key": "item:{id:int}", "load": {**load, "table": "items"}, "changes": [{"table": "items"}], "ttl": "2h"},
            "other": {"key": "other:{id:int}", "load": {**load, "table": "others"}, "ttl": "2h"},
        },
    }  # fmt: skip


async def fill(redis_url):
    """Values as an updater has written them."""
    writer = writer_for(redis_url)
    try:
        for first in range(1, CACHED + 1, 1000):
            token = await writer.token()
            entries = [
                Entry(b"item:%d" % n, b'{"id":%d,"price":1}' % n, 7_200_000)
                for n in range(first, first + 1000)
            ]
            await writer.write(token, entries, form="json")
    finally:
        await writer.close()


class Neighbour:
    """An application of another namespace: 5,000 reads a second, and ten announced changes.

    By turns with these changes it does the same by hand: one SELECT, one SET. So the machine's own share shows.
    """

    def __init__(self, server, redis_url, emit):
        self._plain = redis.Redis.from_url(redis_url)
        self._cache = Redis.from_url(redis_url, emit=emit)
        self._database = psycopg2.connect(server.url().replace("+asyncpg", ""))
        self._database.autocommit = True
        self._stop = threading.Event()
        self.took = []  # (when, seconds from the announcement to the fresh value)
        self.by_hand = []  # the same without an updater
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._probe)]

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for each in self._threads:
            each.join()
        self._cache.close()
        self._plain.close()
        self._database.close()

    def _read(self):
        names = [f"other:{n}" for n in range(1, OTHERS + 1)]
        while not self._stop.wait(READ_EVERY_S):
            self._cache.mget(names)

    def _probe(self):
        price = 10
        while not self._stop.wait(PROBE_EVERY_S):
            price += 1
            number = 1 + price % OTHERS
            self._change(number, price)
            began = time.monotonic()
            self._cache.invalidate(f"other:{number}")
            while not self._stop.is_set() and not self._is_fresh(number, price):
                time.sleep(0.001)
            self.took.append((began, time.monotonic() - began))
            began = time.monotonic()
            self._plain.set("by hand", json.dumps({"price": self._price(number)}))
            self.by_hand.append((began, time.monotonic() - began))

    def _change(self, number, price):
        with self._database.cursor() as cursor:
            cursor.execute("UPDATE others SET price = %s WHERE id = %s", (price, number))

    def _price(self, number):
        with self._database.cursor() as cursor:
            cursor.execute("SELECT price FROM others WHERE id = %s", (number,))
            return cursor.fetchone()[0]

    def _is_fresh(self, number, price):
        value = self._plain.get(f"other:{number}")
        return value is not None and json.loads(value)["price"] == price


def p99(times, since, until):
    return statistics.quantiles([took for at, took in times if since <= at < until], n=100)[98]


class Peak:
    """The most memory that somebody has taken since the start."""

    def __init__(self, now):
        self._now, self.first = now, now()
        self.most = self.first

    def look(self):
        self.most = max(self.most, self._now())

    @property
    def grown_mib(self):
        return (self.most - self.first) / 2**20


def test_a_million_rows_in_one_statement_hurt_nobody(logical_server, redis_server, updaters):
    logical_server.execute(*TABLES)
    logical_server.execute("CREATE PUBLICATION cacheupdater FOR TABLE items")
    logical_server.execute("SELECT pg_create_logical_replication_slot('cacheupdater', 'pgoutput')")
    updater = updaters.start(settings(redis_server.url, logical_server.url()))
    asyncio.run(fill(redis_server.url))
    plain = redis.Redis.from_url(redis_server.url)
    with Neighbour(logical_server, redis_server.url, updater.emit) as neighbour:
        memory = Peak(lambda: psutil.Process(updater.pid).memory_info().rss)
        cache = Peak(lambda: plain.info("memory")["used_memory"])

        def fed():
            """How many changes were told. It is asked before the flood as well, for each look takes the neighbour's time."""
            memory.look()
            cache.look()
            return updater.metric("fed_total", namespace="item")

        eventually(lambda: len(neighbour.took) > 20)
        quiet = time.monotonic()
        eventually(
            lambda: fed() == 0 and time.monotonic() > quiet + QUIET_S,
            within=2 * QUIET_S,
            every=LOOK_EVERY_S,
        )
        flood = time.monotonic()
        logical_server.execute(FLOOD)
        written = time.monotonic()
        eventually(lambda: fed() >= ROWS and not _stale(plain), within=900.0, every=LOOK_EVERY_S)
        rest = time.monotonic()
        phases = {"before": (quiet, flood), "statement": (flood, written), "reading": (written, rest)}
        ours, hand = (
            {name: p99(took, *span) for name, span in phases.items()}
            for took in (neighbour.took, neighbour.by_hand)
        )
    for name, (began, ended) in phases.items():
        print(
            f"{name}, {ended - began:.0f} s: {ours[name] * 1000:.1f} ms, by hand {hand[name] * 1000:.1f} ms"
        )
    print(
        f"updater +{memory.grown_mib:.0f} MiB, Redis +{cache.grown_mib:.0f} MiB, {len(neighbour.took)} changes of the neighbour"
    )
    assert _stale(plain) == 0
    assert memory.grown_mib <= UPDATER_MIB
    assert cache.grown_mib <= REDIS_MIB
    eventually(lambda: updater.metric("feed_waiting", source="shop") < 2**20, within=60.0)
    plain.close()


def _stale(plain):
    """How many old values of items lie in Redis. Every row has price 2 by now."""
    names = list(plain.scan_iter("item:*", count=1000))
    values = plain.mget(names) if names else []
    return sum(json.loads(value)["price"] != 2 for value in values if value is not None)
