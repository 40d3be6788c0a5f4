"""One key that is slow or forbidden takes nothing from its neighbours, on real servers and by public names only.

The updater is a process of its own with a Redis user of its own. PostgreSQL has a row that takes three seconds. The application
reads, and announces its changes.
"""

from __future__ import annotations

import json
import time
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from live.updater_process import config, eventually
from suite.pace import soonest

from cacheupdater_client import Redis

pytestmark = pytest.mark.live

HEALTHY, SLOW = [b"item:%d" % number for number in range(96)], b"item:96"
SLOW_S = 3.0
WITHIN_S = 10.0
FRESH_S = 1.0
CROWD = [f"product:{number}" for number in range(10_000)]  # all of them in each turn of the client's sender
TABLES = (
    "CREATE TABLE items (id bigint PRIMARY KEY, name text, slow boolean)",
    "INSERT INTO items SELECT n, 'item ' || n, n = 96 FROM generate_series(0, 96) n",
    "CREATE TABLE products (id bigint PRIMARY KEY, name text)",
    "INSERT INTO products SELECT n, 'product ' || n FROM generate_series(0, 9999) n",
)
NAMESPACES = {
    "item": {
        "key": "item:{id:int}",
        "load": {
            "source": "main",
            "sql": f"SELECT id, name, CASE WHEN slow THEN pg_sleep({SLOW_S}) END AS nap FROM items WHERE id IN :id",
        },
        "value": {"columns": ["name"]},
    },
    "product": {"key": "product:{id:int}", "load": {"source": "main", "table": "products"}},
    "secret": {
        "key": "secret:{id:int}",
        "load": {"source": "main", "sql": "SELECT id, name FROM products WHERE id IN :id"},
    },
}


@pytest.fixture
def updater(updaters, database, pg_url, redis_url):
    """Its Redis user may touch neither `secret:` nor the floors of it."""
    database.execute(";".join(TABLES))
    with redis.Redis.from_url(redis_url) as admin:
        may = ("~item:*", "~product:*", "~__crs:*item:*", "~__crs:*product:*", "+@all")
        admin.execute_command("ACL", "SETUSER", "updater", "reset", "on", ">pass", *may)
        place = urlsplit(redis_url)
        host = place.netloc.rpartition("@")[2]
        url = urlunsplit(place._replace(netloc=f"updater:pass@{host}"))
        sources = {"main": {"url": pg_url, "budget": "20000/s", "statement_timeout": "1s"}}
        yield updaters.start(config(url, sources, NAMESPACES, every="1s"))
        admin.execute_command("ACL", "DELUSER", "updater")


@pytest.fixture
def application(updater, redis_url):
    with Redis.from_url(redis_url, emit=updater.emit) as client:
        yield client


@pytest.mark.prove
def test_all_healthy_keys_are_loaded_beside_a_slow_row(updater, application, record_property):
    """They are read together each second, so that the updater would load them together."""
    began = time.monotonic()
    found = 0
    while found < len(HEALTHY):
        found = sum(value is not None for value in application.mget(*HEALTHY, SLOW)[:-1])
        assert time.monotonic() - began < 6 * WITHIN_S, f"{found} of {len(HEALTHY)} are loaded"
        time.sleep(0.25)
    took = time.monotonic() - began
    record_property("figure: beside a slow row, all healthy keys loaded after, s", round(took, 1))
    assert took < WITHIN_S
    eventually(lambda: updater.metric("dropped_total", namespace="item", reason="quarantined"))
    assert application.get(SLOW) is None


@pytest.mark.parametrize("turns", [5, pytest.param(100, marks=pytest.mark.prove)])
def test_a_neighbours_change_is_fresh_beside_a_forbidden_key_after_a_flood(
    turns, updater, application, database, record_property
):
    """The application changes the forbidden key again and again: its removal is refused, and given up each time."""
    application.set("secret:1", "old")
    heard = updater.metric("hints_total")
    for _ in range(turns):
        application.invalidate("secret:1")
        application.mget(CROWD)
        heard += len(CROWD)
        eventually(lambda sent=heard: updater.metric("hints_total") >= sent)

    numbers = count()

    def change():
        number = next(numbers)
        database.execute(f"UPDATE products SET name = 'changed' WHERE id = {number}")
        began = time.monotonic()
        application.invalidate(f"product:{number}")
        eventually(lambda: b"changed" in (application.get(f"product:{number}") or b""), every=0.005)
        return time.monotonic() - began

    took = soonest(change, within=FRESH_S)
    record_property(f"figure: after {turns * len(CROWD)} hints beside a forbidden key, fresh after, s", took)
    eventually(lambda: updater.metric("dropped_total", namespace="secret", reason="removal_refused"))
    assert [each for each in updater.troubles if each.startswith("removal_refused secret: ")]
    eventually(lambda: updater.metric("oldest_open_seconds") < 10.0)
    last = eventually(lambda: application.get("product:9000"))
    assert json.loads(last)["name"] == "product 9000"
