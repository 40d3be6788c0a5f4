"""An application that caches rows meets an updater whose source hides them: a wrong database, row security, a WHERE too many.

The application's values stay, or are lost twice. The operator is told why.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hints.peer import HintPeer
from live.database import Database
from live.updater_process import Updaters, config, eventually

from cacheupdater_client.protocol.wire import MISS, TOUCH

ROWS = range(1, 61)
WORDS = "the source shows no row"


@pytest.fixture
def start(redis_url, pg_url):
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder, Database(pg_url) as database:
        database.execute("CREATE TABLE products (id int PRIMARY KEY, name text)")
        updaters = Updaters(Path(folder))

        def begin(where="true", rows=()):
            for n in rows:
                database.execute(f"INSERT INTO products VALUES ({n}, 'chair {n}')")
            product = {
                "key": "product:{id:int}",
                "load": {
                    "sql": f"SELECT id, name FROM products WHERE id IN :id AND {where}",
                    "source": "main",
                },
                "refresh": {"every": "200ms"},
            }
            sources = {"main": {"url": pg_url, "budget": "5000/s"}}
            return updaters.start(config(redis_url, sources, {"product": product}))

        yield begin
        updaters.close()


@pytest.fixture
def start_orders(redis_url, pg_url):
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder, Database(pg_url) as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, user_id int, total int)")
        database.execute("INSERT INTO orders SELECT n, n, n FROM generate_series(1, 20) n")
        orders = {
            "key": "orders:{user_id:int}",
            "load": {
                "sql": "SELECT user_id, id, total FROM orders WHERE user_id IN :user_id",
                "source": "main",
                "rows": "many",
            },
            "value": {"columns": ["id", "total"]},
            "refresh": {"every": "200ms"},
        }
        sources = {"main": {"url": pg_url, "budget": "5000/s"}}
        updaters = Updaters(Path(folder))
        yield updaters.start(config(redis_url, sources, {"orders": orders})), database
        updaters.close()


class Shop:
    """An application that reads through Redis, and fills each key that it misses."""

    def __init__(self, plain, peer):
        self.plain, self.peer, self.missed = plain, peer, 0

    def fill(self, *numbers):
        for n in numbers:
            self.plain.set(f"product:{n}", json.dumps({"id": n, "name": f"chair {n}"}), ex=600)

    def read(self, n):
        key = f"product:{n}"
        if self.plain.exists(key):
            self.peer.hint(TOUCH, key.encode())
            return
        self.missed += 1
        self.peer.hint(MISS, key.encode())
        self.fill(n)

    def read_all(self, rounds):
        for _ in range(rounds):
            for n in ROWS:
                self.read(n)


def told(updater):
    return [line for line in updater.messages if WORDS in json.dumps(line)]


def test_a_source_without_any_row_costs_the_application_no_value(start, plain):
    updater = start()
    with HintPeer(updater.socket) as peer:
        shop = Shop(plain, peer)
        shop.fill(*ROWS)
        shop.read_all(20)
        eventually(lambda: (shop.read_all(1), told(updater))[1])
        shop.read_all(40)
    assert shop.missed == 0
    assert plain.exists(*[f"product:{n}" for n in ROWS]) == len(ROWS)


def test_misses_before_the_reads_cost_no_value_either(start, plain):
    """A unit begins with its misses, and these have no values."""
    updater = start()
    with HintPeer(updater.socket) as peer:
        shop = Shop(plain, peer)
        shop.fill(*ROWS)

        def kept():
            peer.hint(MISS, *[b"product:%d" % n for n in range(1000, 1100)])
            peer.hint(TOUCH, *[b"product:%d" % n for n in ROWS[:15]])
            return updater.metric("refreshes_total", result="braked")

        eventually(lambda: kept() >= 10 * 15)
    assert plain.exists(*[f"product:{n}" for n in ROWS]) == len(ROWS)
    assert told(updater)


@pytest.mark.prove
def test_a_statement_that_leaves_some_rows_out_costs_the_application_each_value_twice(start, plain):
    updater = start(where="id % 3 > 0", rows=ROWS)
    with HintPeer(updater.socket) as peer:
        shop = Shop(plain, peer)
        shop.fill(*ROWS)
        eventually(lambda: (shop.read_all(1), told(updater))[1])
        eventually(lambda: (shop.read_all(1), shop.missed >= 2 * len(ROWS) // 3)[1])
        shop.read_all(100)
    assert shop.missed == 2 * len(ROWS) // 3


def test_an_empty_list_that_the_application_has_cached_stays_until_there_is_a_row(start_orders, plain):
    """Stock code caches `[]` for a user without orders. If an updater removed the list, each of its reads would go to the database."""
    updater, database = start_orders
    for n in range(1, 41):
        plain.set(f"orders:{n}", json.dumps([{"id": n, "total": n}] if n <= 20 else []), ex=600)
    keys = [b"orders:%d" % n for n in range(1, 41)]
    with HintPeer(updater.socket) as peer:
        eventually(
            lambda: (
                peer.hint(TOUCH, *keys),
                updater.metric("refreshes_total", result="unchanged") >= 5 * len(keys),
            )[1]
        )
        assert [plain.get(f"orders:{n}") for n in range(21, 41)] == [b"[]"] * 20
        database.execute("INSERT INTO orders VALUES (99, 30, 5)")
        eventually(
            lambda: (
                peer.hint(TOUCH, b"orders:30"),
                json.loads(plain.get("orders:30")) == [{"id": 99, "total": 5}],
            )[1]
        )
    assert not updater.metric("refreshes_total", result="foreign")
    assert not updater.metric("refreshes_total", result="braked")
