"""P14: the time of an announced change from `invalidate` to the fresh value in Redis, beside ordinary reads.

A real updater process (`cacheupdater run`) runs between a real PostgreSQL and a real Redis, with the README's budget of 500
rows a second and the policy that learns. One application reads 500 times a second through our client. Ten times a second it
writes a new price, commits, and calls `invalidate`. The clock starts before that call and stops when Redis has the new price;
the application looks every quarter of a millisecond. By turns with these probes, the bare path is measured for another key:
the same `invalidate` as a script call, one SELECT, one fenced write, by hand in one process.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time

import asyncpg
import redis
import rig
from table import row

from cacheupdater_client import Redis, close, stats
from cacheupdater_client.protocol import fence

PROBES = 250
READS_S = 0.002  # between two reads: 500 a second
PROBE_S = 0.1  # between two changes
LOOK_S = 0.000_25  # between two looks for the fresh value
LOST_S = 5.0
WARM_S = 3.0
KEYS = 100
GOALS_MS = (5.0, 15.0)

CONFIG = """
version: 1
listen: ["{listen}"]
queue: {{url: "memory://"}}
cache: {{url: "{cache}"}}
sources:
  main: {{url: "{postgres}", budget: 500/s, pool_size: 4}}
namespaces:
  item:
    key: "item:{{id:int}}"
    load: {{source: main, sql: "SELECT id, name, price FROM items WHERE id IN :id"}}
"""


class Shop:
    """The application: it reads, changes prices and announces them."""

    def __init__(self, postgres, cache, address):
        self.runner = asyncio.Runner()
        self.database = self.runner.run(asyncpg.connect(postgres.replace("+asyncpg", "")))
        self.cache = Redis.from_url(cache, emit=address)
        self.plain = redis.Redis.from_url(cache)
        self.rng = random.Random(14)
        self.last = 0  # the number of the last row
        self.price = 10_000
        self.due = time.perf_counter()

    def read(self):
        """Does the reads that are due by now."""
        while self.due <= time.perf_counter():
            self.due += READS_S
            self.cache.get(f"item:{self.rng.randrange(1, KEYS + 1)}")

    def rest(self, seconds):
        """Only reads, for so long."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.read()
            time.sleep(LOOK_S)

    def change(self):
        """Commits a new price of another row than the last one. Returns the key and the price.

        Of two changes of a key within 100 ms, the second one is loaded 100 ms after the first: the gap, which is no latency.
        """
        self.price += 1
        number = self.last = 1 + (self.last + self.rng.randrange(KEYS - 1)) % KEYS
        statement = self.database.execute("UPDATE items SET price = $1 WHERE id = $2", self.price, number)
        self.runner.run(statement)
        return number, self.price

    def probe(self):
        """Seconds from `invalidate` to the fresh value; infinite if it never comes."""
        number, price = self.change()
        key = f"item:{number}"
        began = time.perf_counter()
        self.cache.invalidate(key)
        while (took := time.perf_counter() - began) < LOST_S:
            value = self.plain.get(key)
            if value is not None and json.loads(value)["price"] == price:
                return took
            self.read()
            time.sleep(LOOK_S)
        return float("inf")

    def bare(self):
        """The same by hand, with no updater in between."""
        number, price = self.change()
        key = b"item:%d" % number
        began = time.perf_counter()
        self.plain.evalsha(fence.INVALIDATE.sha, *fence.invalidate_args([key]))
        token = fence.token_of(*self.plain.time())
        found = self.runner.run(
            self.database.fetchrow("SELECT id, name, price FROM items WHERE id = $1", number)
        )
        entries = [(key, json.dumps(dict(found)).encode(), 300_000)]
        written = self.plain.evalsha(fence.COMMIT.sha, *fence.commit_args(token, entries))
        took = time.perf_counter() - began
        assert written == [fence.WRITTEN], written
        assert found["price"] == price
        return took

    def measure(self):
        """Measures both paths by turns."""
        for script in (fence.INVALIDATE, fence.COMMIT):
            self.plain.script_load(script.text)
        self.rest(WARM_S)
        probed, bare = [], []
        for _ in range(PROBES):
            probed.append(self.probe())
            self.rest(PROBE_S / 2)
            bare.append(self.bare())
            self.rest(PROBE_S / 2)
        return probed, bare

    def close(self):
        self.runner.run(self.database.close())
        self.runner.close()
        close()


def measure(postgres, cache, folder):
    address = f"unix://{folder}/hints.sock"
    with rig.updater(CONFIG.format(listen=address, cache=cache, postgres=postgres), folder):
        shop = Shop(postgres, cache, address)
        try:
            return shop.measure()
        finally:
            shop.close()
            assert stats()["delivered"] > 0, stats()


def percentile(took, share):
    return sorted(took)[int((len(took) - 1) * share)] * 1000


def run():
    """The rows for `build/bench.json`."""
    with rig.servers() as (postgres, cache), tempfile.TemporaryDirectory() as folder:
        probed, bare = measure(postgres, cache, folder)
    method = (
        f"ms from invalidate to the fresh value, {PROBES} changes beside {1 / READS_S:.0f} reads/s of {KEYS} keys, "
        f"budget 500/s; the slowest {max(probed) * 1000:.1f}"
    )
    rows = []
    for name, share, goal in zip(("p50", "p99"), (0.5, 0.99), GOALS_MS, strict=True):
        rows.append(row(f"P14-{name}", percentile(probed, share), goal, method=method))
        how = "ms of invalidate, SELECT and fenced write by hand, by turns with the probes"
        rows.append(row(f"P14-bare-{name}", percentile(bare, share), None, method=how))
    return rows


if __name__ == "__main__":
    for each in run():
        print(each)
