"""The whole service as a user sees it: a real updater process, a real Redis, a real database, and our client.

Each test is a story: an application acts through the client, and a moment later any client of Redis sees the result. One
updater serves all tests, and each test has rows of its own.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from itertools import count
from pathlib import Path

import msgspec
import pytest
import redis
from live.database import Database
from live.shop import FRESH_S, HOLD_S, NAMESPACES, TABLES
from live.taking_over import take_over
from live.updater_process import Updaters, config, eventually
from suite.pace import soonest

import cacheupdater_client
from cacheupdater_client import Redis
from cacheupdater_client.asyncio import Redis as AsyncRedis


@pytest.fixture(scope="module")
def shop(module_pg_url):
    with Database(module_pg_url) as database:
        database.execute(";".join(TABLES))
        yield database


@pytest.fixture(scope="module")
def updater(shop, module_pg_url, session_redis_url):
    sources = {"main": {"url": module_pg_url, "budget": "5000/s"}, "code": {"budget": "5000/s"}}
    with redis.Redis.from_url(session_redis_url) as client:
        client.flushdb()
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        started = Updaters(Path(folder))
        updater = started.start(config(session_redis_url, sources, NAMESPACES, missing="60s"))
        take_over(updater, session_redis_url, b"product:20")
        yield updater
        started.close()


@pytest.fixture
def plain(session_redis_url):
    """Any client of Redis: it leaves no hints."""
    with redis.Redis.from_url(session_redis_url) as client:
        yield client


@pytest.fixture
def application(updater, session_redis_url):
    """What our user writes instead of `redis.Redis`."""
    with Redis.from_url(session_redis_url, emit=updater.emit) as client:
        yield client


def read_until(application, key, good):
    """Reads as an application does, until what it reads is good."""

    def look():
        value = application.get(key)
        return value if value is not None and good(value) else None

    return eventually(look)


def test_a_miss_is_filled_for_every_client(application, plain):
    assert application.get("product:7") is None

    eventually(lambda: plain.get("product:7"))

    assert json.loads(plain.get("product:7")) == {"name": "product 7", "price": "700.00"}
    assert 0 < plain.pttl("product:7") <= 60_000


def test_a_key_that_is_read_is_refreshed_and_one_that_is_not_read_is_not(application, plain, shop):
    for key in ("product:1", "product:2"):
        application.get(key)
        eventually(lambda key=key: plain.get(key))

    shop.execute("UPDATE products SET price = 1 WHERE id IN (1, 2)")  # nobody is told
    read_until(application, "product:1", lambda value: b'"1.00"' in value)

    assert json.loads(plain.get("product:2"))["price"] == "200.00"


def test_a_refresh_follows_a_touch_no_sooner_than_every(updater, application, plain):
    application.get("price:100:de")
    began = time.monotonic()

    def ran():
        return updater.metric("statements_total", namespace="price")

    while time.monotonic() - began < 5 * HOLD_S or ran() < 3:
        application.get("price:100:de")
        time.sleep(0.001)

    assert ran() <= (time.monotonic() - began) / HOLD_S + 2


def test_a_changed_row_is_fresh_within_a_second_after_invalidate(application, plain, shop):
    application.get("product:3")
    eventually(lambda: plain.get("product:3"))

    prices = count(5)

    def change():
        price = next(prices)
        shop.execute("UPDATE products SET price = $1 WHERE id = 3", price)
        application.invalidate("product:3")
        eventually(lambda: f'"{price}.00"'.encode() in (plain.get("product:3") or b""))

    soonest(change, FRESH_S)


def test_a_row_that_is_absent_costs_no_loads_until_it_is_created_and_announced(updater, application, shop):
    def loads():
        return updater.metric("statements_total", namespace="product")

    before = loads()
    application.get("product:9999")
    eventually(lambda: loads() == before + 1)
    time.sleep(0.2)  # beyond the gap: from here on it is the mark that spares the database

    for _ in range(20):
        assert application.get("product:9999") is None
        time.sleep(0.01)
    eventually(lambda: updater.metric("decisions_total", decision="absent"))
    assert loads() == before + 1

    shop.execute("INSERT INTO products VALUES (9999, 'new', 1)")
    application.invalidate("product:9999")
    eventually(lambda: application.get("product:9999"))


def test_a_deleted_row_leaves_redis_and_stays_away(application, plain, shop):
    application.get("product:4")
    eventually(lambda: plain.get("product:4"))

    shop.execute("DELETE FROM products WHERE id = 4")
    application.invalidate("product:4")

    for _ in range(10):
        assert application.get("product:4") is None
        time.sleep(0.05)


def test_every_encoding_is_readable_by_a_plain_client(application, plain):
    pipe = application.pipeline(transaction=False)
    for key in ("basket:1:books", "orders:1", "title:7", "body:2:books", "banner:top", "price:3:de"):
        pipe.get(key)
    pipe.hgetall("user:1").hgetall("user:2")
    assert not any(pipe.execute())
    keys = (
        "basket:1:books",
        "orders:1",
        "title:7",
        "body:2:books",
        "banner:top",
        "price:3:de",
        "user:1",
        "user:2",
    )
    eventually(lambda: plain.exists(*keys) == len(keys))

    assert msgspec.msgpack.decode(plain.get("basket:1:books")) == {"body": b"A"}
    assert [row["id"] for row in json.loads(plain.get("orders:1"))] == [10, 11]
    assert plain.get("title:7") == b"product 7"
    assert plain.get("body:2:books") == b"C"
    assert json.loads(plain.get("banner:top")) == {"slot": "top", "text": "banner of top"}
    assert json.loads(plain.get("price:3:de")) == {"price": 6}
    assert plain.hgetall("user:1") == {b"id": b"1", b"name": b"Ada", b"age": b"36"}
    assert plain.hgetall("user:2")[b"name"].decode() == "Zoë"


def test_a_group_of_rows_follows_its_changes(application, plain, shop):
    application.get("orders:2")
    eventually(lambda: plain.get("orders:2"))

    shop.execute("INSERT INTO orders VALUES (2, 13, 1)")
    application.invalidate("orders:2")
    eventually(lambda: [row["id"] for row in json.loads(plain.get("orders:2") or b"[]")][1:] == [13])

    shop.execute("DELETE FROM orders WHERE user_id = 2")
    application.invalidate("orders:2")
    assert application.get("orders:2") is None


def test_a_hash_loses_the_fields_that_its_row_has_lost(application, plain, shop):
    application.hgetall("user:4")
    eventually(lambda: plain.hgetall("user:4"))

    shop.execute("UPDATE users SET mail = NULL WHERE id = 4")
    eventually(lambda: b"mail" not in application.hgetall("user:4"), 10 * HOLD_S)

    assert plain.hgetall("user:4")[b"age"] == b"8"


def test_many_misses_at_once_share_statements(updater, application, plain):
    before = updater.metric("statements_total", namespace="product")
    keys = [f"product:{n}" for n in range(101, 501)]
    application.mget(keys)

    eventually(lambda: all(plain.mget(keys)))

    assert updater.metric("statements_total", namespace="product") - before <= 20


def test_keys_of_no_namespace_never_leave_the_process(updater, plain, session_redis_url):
    plain.set("session:1", "somebody's")
    with Redis.from_url(session_redis_url, emit=updater.emit, only=["session:", "product:"]) as application:
        for key in ("session:1", "session:2", "produce:1", "user:3", "product:10"):
            application.get(key)
        eventually(lambda: plain.get("product:10"))
        target = f"{updater.emit} only product:, session:"
        eventually(lambda: cacheupdater_client.stats()["targets"][target]["delivered"] == 1)
        dropped = cacheupdater_client.stats()["targets"][target]["dropped"]

    assert dropped == {"undeclared": 4}
    assert plain.get("session:1") == b"somebody's"
    assert plain.ttl("session:1") == -1
    assert not plain.exists("user:3", "session:2", "produce:1")


def test_a_command_of_the_application_that_writes_a_key_is_followed_by_a_refresh(application, plain):
    application.set("product:5", '"by hand"')

    eventually(lambda: plain.get("product:5") != b'"by hand"')

    assert json.loads(plain.get("product:5"))["name"] == "product 5"


def test_write_through_is_seen_at_once_and_then_followed_by_the_row(application, plain, shop):
    since = application.token()
    shop.execute("UPDATE products SET price = 42 WHERE id = 6")

    assert application.write_through("product:6", "42", ttl=60, since=since)
    eventually(lambda: b'"42.00"' in plain.get("product:6"))


async def test_the_asyncio_client_tells_the_same_story(updater, plain, session_redis_url):
    async with AsyncRedis.from_url(session_redis_url, emit=updater.emit) as application:
        assert await application.get("product:8") is None
        await asyncio.to_thread(eventually, lambda: plain.get("product:8"))

        await application.invalidate("product:8")
        await asyncio.to_thread(eventually, lambda: plain.get("product:8"))


def test_the_pages_of_an_operator_answer(updater, application):
    application.hgetall("user:5")
    eventually(lambda: updater.metric("hint_to_write_seconds_count", namespace="user"))

    assert updater.page("/livez")[0] == 200
    status, conditions = updater.page("/readyz")
    assert (status, json.loads(conditions)["ready"]) == (200, True)
    assert updater.page("/nothing")[0] == 404
    assert updater.metric("refreshes_total", namespace="user", result="written") >= 1
    eventually(lambda: updater.metric("pending") == 0)
