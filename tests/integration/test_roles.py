"""What a process may be, live: a collector in front of streams of a Redis, with updaters behind them."""

from __future__ import annotations

import json

import pytest
from hints.peer import HintPeer
from live.updater_process import config, eventually

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client.protocol.wire import CHANGE, MISS, Hello

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
ROWS = 40


@pytest.fixture
def durable_redis():
    """A Redis for hints that keeps what it has answered for."""
    with RedisServer(options=DURABLE) as server:
        yield server


class Shop:
    """Products with prices, in the database and in the cache."""

    def __init__(self, database, plain):
        self._database, self._plain = database, plain
        database.execute(
            "CREATE TABLE products (id int PRIMARY KEY, price int);"
            f"INSERT INTO products SELECT id, 1 FROM generate_series(1, {ROWS}) id"
        )

    def names(self, ids=range(1, ROWS + 1)):
        return [b"product:%d" % each for each in ids]

    def price_all(self, price, ids=range(1, ROWS + 1)):
        self._database.execute(f"UPDATE products SET price = {price} WHERE id BETWEEN {ids[0]} AND {ids[-1]}")

    def prices(self):
        """Those in the cache, None where there is none."""
        found = self._plain.mget(self.names())
        return [value and json.loads(value)["price"] for value in found]


@pytest.fixture
def shop(database, plain):
    return Shop(database, plain)


@pytest.fixture
def file_of(redis_url, pg_url):
    """The file of an updater with this queue."""

    def file_of(queue, *, collects=False):
        load = {"source": "main", "sql": "SELECT id, price FROM products WHERE id IN :id"}
        sources = {"main": {"url": pg_url, "budget": "1000/s"}}
        namespaces = {"product": {"key": "product:{id:int}", "load": load}}
        settings = config(redis_url, sources, namespaces, every="40s")
        return {**settings, "queue": {"url": queue}, **({} if collects else {"listen": None})}

    return file_of


def test_no_change_that_a_collector_acknowledged_is_lost_when_the_redis_of_the_streams_dies(
    updaters, collectors, durable_redis, shop, file_of
):
    url = f"{durable_redis.url}?stream=hints&partitions=3"
    collector = collectors(f"{durable_redis.url}?stream=hints")
    collector.launch()
    eventually(lambda: any("no updater has opened" in each for each in collector.messages))
    updaters.start(file_of(f"{url}&session_timeout=2s"))
    collector.wait_ready()
    first, second = shop.names(range(1, 21)), shop.names(range(21, ROWS + 1))
    with HintPeer(collector.socket) as one, HintPeer(collector.socket) as other:
        assert one.hello == other.hello == Hello(3, [])
        one.hint(MISS, *first)
        other.hint(MISS, *second)
        assert eventually(lambda: shop.prices() == [1] * ROWS)
        shop.price_all(2)
        one.hint(CHANGE, *first)  # has returned: the streams have them
        durable_redis.kill()
        other.hint_unheard(CHANGE, *second)
        eventually(lambda: collector.troubles)
        assert other.accepted < other.sent
        durable_redis.start()
        other.wait()
        assert eventually(lambda: shop.prices() == [2] * ROWS)
    assert eventually(lambda: not collector.troubles)
    assert collector.metric("dropped_total") == 0
