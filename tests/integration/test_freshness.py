"""The freshness page of a real updater under a small load, and the uses of a recording of that load."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import redis
from live import warm
from live.updater_process import eventually

from cacheupdater.local.children import dying_with_us
from cacheupdater_client import Redis

ROWS = 300
BUDGET = 100
TABLE = (
    "CREATE TABLE products (id bigint PRIMARY KEY, price bigint)",
    f"INSERT INTO products SELECT n, 0 FROM generate_series(1, {ROWS}) n",
)
RECORD_S = 8


def settings(redis_url, pg_url, **more):
    return {
        "version": 1,
        "cache": {"url": redis_url},
        "queue": {"url": "memory://", "partitions": 2},
        "sources": {"main": {"url": pg_url, "budget": f"{BUDGET}/s"}},
        "namespaces": {
            "product": {"key": "product:{id:int}", "load": {"source": "main", "table": "products"}} | more
        },
    }


@pytest.fixture
def shop(database):
    database.execute(";".join(TABLE))
    return database


class Reads(threading.Thread):
    """As many as the machine's pace allows."""

    def __init__(self, redis_url, emit):
        super().__init__()
        self.stop = threading.Event()
        self.count, self._began = 0, time.monotonic()
        self._redis_url, self._emit = redis_url, emit

    def run(self):
        draw = random.Random(1)
        with Redis.from_url(self._redis_url, emit=self._emit) as client:
            while not self.stop.wait(0.002):
                client.get(f"product:{1 + int(ROWS * draw.random() ** 3)}")
                self.count += 1

    @property
    def per_second(self):
        return self.count / (time.monotonic() - self._began)


@contextmanager
def load(redis_url, emit, shop):
    """Some hundred reads a second, the first keys much more often than the last, and a third of the rows changing."""
    reads = Reads(redis_url, emit)
    reads.start()
    try:
        yield reads
    finally:
        reads.stop.set()
        reads.join()


def change(shop, seconds):
    """Every third row in turn, some thirty changes a second, for so long."""
    end, at = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        shop.execute(f"UPDATE products SET price = price + 1 WHERE id % 30 = {at % 10 * 3}")
        at += 1
        time.sleep(0.3)


def told(updater):
    """What its page says of its source."""
    status, page = updater.page("/freshness")
    assert status == 200
    [source] = json.loads(page)["sources"]
    return source


def busy(source):
    """It, where so much of the budget is spent; the slower the machine reads, the later."""
    return source if source["used"] > 0.3 else None


@pytest.mark.prove
def test_the_table_shows_what_the_load_was(updaters, redis_url, pg_url, shop):
    updater = updaters.start(settings(redis_url, pg_url, refresh={"max_age": "30s"}))
    with load(redis_url, updater.emit, shop) as reads:
        change(shop, 9.0)
        source, rate = eventually(lambda: busy(told(updater))), reads.per_second
        printed = warm.run("freshness", "-c", updater.file)
        eventually(lambda: updater.metric("stale_measured_high", namespace="product"))
    eventually(lambda: updater.metric("learned", source="main") == told(updater)["learned"])

    print(printed.stdout)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert re.search(r"^main +100/s +\d+", printed.stdout, re.MULTILINE)
    assert re.search(r"^  product +[\d.]+ .*%", printed.stdout, re.MULTILINE)
    [product] = source["namespaces"]
    assert source["used"] < 1.5
    assert source["price"] > 0.0
    assert 0.3 * rate < product["reads"] < 2.0 * rate
    assert 0.0 < product["stale_estimated"] < 0.8
    assert product["draws"] > 5
    assert product["stale_measured_low"] <= product["stale_measured"] <= product["stale_measured_high"]
    assert 0.0 < product["useful"] < 1.0
    assert 0.5 * ROWS < product["learned"] <= ROWS
    half, same, twice = (each["stale"] for each in source["outlook"])
    assert half >= same >= twice >= 0.0
    assert updater.metric("price", source="main") > 0.0
    assert 0.0 < updater.metric("budget_used", source="main") < 1.5
    assert updater.metric("stale_estimated", namespace="product") > 0.0


def as_we_do(row):
    return json.dumps(row, separators=(",", ":"))


def backwards(row):
    return json.dumps(dict(reversed(row.items())))


@pytest.mark.parametrize(
    "spelled", [backwards, *(pytest.param(each, marks=pytest.mark.prove) for each in (as_we_do, json.dumps))]
)
def test_first_writes_over_the_applications_values_tell_nothing_however_these_are_spelled(
    updaters, redis_url, pg_url, shop, plain, spelled
):
    """An adoption: all values are the application's own, and the updater replaces each of them once."""
    plain.mset({f"product:{n}": spelled({"id": n, "price": 0}) for n in range(1, ROWS + 1)})
    updater = updaters.start(settings(redis_url, pg_url))

    def found(result):
        return updater.metric("refreshes_total", result=result)

    with load(redis_url, updater.emit, shop):
        eventually(lambda: found("adopted") > 0.5 * ROWS)
        source = eventually(lambda: enough if (enough := told(updater))["draws"] > 10 else None)

    print(source, {each: found(each) for each in ("adopted", "written", "unchanged")})
    assert found("written") == 0
    assert source["stale_measured"] == 0.0
    assert source["useful"] in {None, 0.0}


def test_a_fixed_interval_has_no_price_to_show(updaters, redis_url, pg_url, shop):
    updater = updaters.start(settings(redis_url, pg_url, refresh={"every": "1s"}))
    printed = warm.run("freshness", "-c", updater.file)
    assert printed.returncode == 78
    assert "refresh: {policy: price}" in printed.stderr
    assert json.loads(updater.page("/freshness")[1])["sources"] == []


@pytest.mark.prove
def test_a_recorded_minute_plans_budgets_offline(updaters, redis_url, pg_url, shop, tmp_path):
    updater = updaters.make(settings(redis_url, pg_url))
    file = tmp_path / "minute.rec"
    command = [sys.executable, "-m", "cacheupdater", "record", "-c", str(updater.file)]
    with redis.Redis.from_url(redis_url) as plain:
        plain.mset({f"product:{n}": "{}" for n in range(1, ROWS + 1)})
    with subprocess.Popen(
        dying_with_us([*command, "--for", f"{RECORD_S}s", "-o", str(file)]), stdout=subprocess.PIPE, text=True
    ) as recording:
        assert recording.stdout.readline() == f"ready {updater.emit}\n"
        with load(redis_url, updater.emit, shop):
            change(shop, RECORD_S)
            said = recording.stdout.read()
            assert recording.wait(30) == 0
    assert re.fullmatch(r".*: [\d,]+ reads of \d+ keys in 8s, and \d+ keys watched for changes\n", said)
    assert b"product:" not in file.read_bytes()
    with redis.Redis.from_url(redis_url) as plain:
        assert plain.dbsize() == ROWS  # no value, no floor, nothing
        assert {plain.get(f"product:{n}") for n in range(1, ROWS + 1)} == {b"{}"}

    planned = warm.run("plan", file, "--budget", "10/s,100/s,1000/s,300ms/s")
    print(planned.stdout)
    assert (planned.returncode, planned.stderr) == (0, "")
    rows = [re.split(r" {2,}", line) for line in planned.stdout.splitlines() if line.startswith("main")]
    assert [row[1] for row in rows] == ["10/s", "100/s", "1000/s", "300ms/s"]
    stale = [float(row[3].rstrip("%")) for row in rows]
    assert stale[0] > stale[1] > stale[2]
    assert "That is little to go by" in planned.stdout
    assert re.search(r"\d sampled keys", planned.stdout)  # 2 % of 100 rows a second, each key twice
