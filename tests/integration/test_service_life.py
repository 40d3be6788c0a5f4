"""An updater from its start to its end: with a quota, on SQLite, inside the application, and stopped while it works."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import time
from contextlib import closing

import pytest
from live.shop import NAMESPACES, TABLES
from live.updater_process import config, eventually
from suite.pace import busiest

import cacheupdater_client
from cacheupdater_client import Redis
from cacheupdater_client.asyncio import Redis as AsyncRedis


@pytest.fixture
def shop(database):
    database.execute(";".join(TABLES))
    return database


@pytest.fixture
def settings(redis_url, pg_url, shop):
    sources = {"main": {"url": pg_url, "budget": "5000/s"}, "code": {"budget": "5000/s"}}
    return config(redis_url, sources, json.loads(json.dumps(NAMESPACES)))


def test_a_quota_bounds_the_rows_that_reach_the_database(
    updaters, settings, shop, redis_url, plain, tmp_path
):
    rate, burst = 40, 20
    calls = tmp_path / "calls"
    settings["namespaces"]["price"]["quota"] = {"rate": f"{rate}/s", "burst": burst}
    updater = updaters.start(settings, environment={"LOADER_LOG": str(calls)})

    def noted():
        """When each row was loaded."""
        lines = map(str.split, calls.read_text().splitlines()) if calls.exists() else ()
        return [float(at) for at, keys in lines for _ in range(int(keys))]

    with Redis.from_url(redis_url, emit=updater.emit) as application:
        began = time.monotonic()  # before anything was paid
        application.mget([f"price:{n}:de" for n in range(1000)])
        application.get("product:1")
        eventually(lambda: plain.get("product:1"))  # somebody else's quota is no hindrance
        eventually(lambda: len(noted()) >= burst + 3 * rate)

    ran = noted()
    assert len(ran) <= rate * (ran[-1] - began) + burst + 1
    assert busiest(ran[burst:], 1.0) >= 0.7 * rate, "what the quota allows is used"


def test_sqlite_serves_as_well(redis_url, plain, tmp_path, updaters):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as own, own:
        own.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)")
        own.execute("INSERT INTO products VALUES (1, 'one', 10), (2, 'two', 20)")
    source = {"main": {"url": f"sqlite+aiosqlite:///{path}", "budget": "500/s"}}
    updater = updaters.start(config(redis_url, source, {"product": NAMESPACES["product"]}))
    with Redis.from_url(redis_url, emit=updater.emit) as application:
        application.mget("product:1", "product:2", "product:3")
        eventually(lambda: plain.exists("product:1", "product:2") == 2)
        with closing(sqlite3.connect(path)) as own, own:
            own.execute("UPDATE products SET price = 11 WHERE id = 1")
        application.invalidate("product:1")
        eventually(lambda: plain.get("product:1") == b'{"name":"one","price":11}')

    assert not plain.exists("product:3")


# --- the end of an updater ------------------------------------------------------------------------------


def test_sigterm_finishes_what_was_acknowledged(settings, redis_url, plain, updaters):
    keys = [f"product:{n}" for n in range(1, 401)]
    settings["sources"]["main"]["budget"] = "70/s"  # so that it takes five seconds
    updater = updaters.start(settings)
    with Redis.from_url(redis_url, emit=updater.emit) as application:
        application.mget(keys)
        eventually(lambda: delivered(updater) == len(keys), every=0.001)
        assert not all(plain.mget(keys))

        updater.terminate()

        assert updater.wait() == 0
    assert all(plain.mget(keys))
    assert not updater.socket.exists()
    assert updater.complaints == []


def delivered(updater):
    return cacheupdater_client.stats()["targets"][updater.emit]["delivered"]


def test_sigterm_waits_for_a_slow_statement(settings, shop, redis_url, plain, updaters):
    settings["sources"]["main"]["statement_timeout"] = "1.8s"
    slow = "SELECT id, name, price, pg_sleep(1.5) FROM products WHERE id IN :id"
    settings["namespaces"]["product"]["load"]["sql"] = slow
    updater = updaters.start(settings)
    with Redis.from_url(redis_url, emit=updater.emit) as application:

        def runs():
            application.get("product:1")  # again, if nobody has looked while the statement ran
            return running_statements(shop)

        eventually(runs)

        updater.terminate()

        assert updater.wait() == 0
        assert plain.get("product:1")


def test_a_second_signal_aborts_at_once(settings, redis_url, updaters):
    settings["sources"]["main"]["budget"] = "20/s"  # a drain of ten seconds and more
    updater = updaters.start(settings)
    with Redis.from_url(redis_url, emit=updater.emit) as application:
        application.mget([f"product:{n}" for n in range(1, 401)])
        eventually(lambda: delivered(updater) == 400)
        updater.terminate()
        eventually(lambda: not updater.socket.exists())  # it drains
        assert "stopping: accepted hints have 10 s to be finished" in updater.log

        os.kill(updater.pid, signal.SIGINT)  # no echo of the first, however soon it comes

        assert updater.wait() == 128 + 2  # a drain ends with 0
        assert "aborted by a second signal" in updater.log


def running_statements(database):
    return database.value(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%sleep%'"
    )


# --- in one process -------------------------------------------------------------------------------------


async def test_an_updater_in_the_applications_own_process(settings, redis_url, tmp_path):
    from cacheupdater.config import load_config
    from cacheupdater.service import Service

    file = tmp_path / "cacheupdater.yaml"
    file.write_text(json.dumps({**settings, "listen": ["memory://shop"]}))
    stop, ready = asyncio.Event(), asyncio.Queue()
    service = asyncio.ensure_future(Service(load_config(file, {})).run(ready.put_nowait, stop))
    try:
        assert await asyncio.wait_for(ready.get(), 60) == "memory://shop"
        async with AsyncRedis.from_url(redis_url, emit="memory://shop") as application:
            async with asyncio.timeout(60):
                while await application.get("product:1") is None:  # noqa: ASYNC110  no event says so
                    await asyncio.sleep(0.02)
    finally:
        stop.set()
        assert await asyncio.wait_for(service, 60) == 0
