"""P13: after FLUSHALL, the time until 99 % of the old hit rate is back: ours, TTL cache-aside, and dogpile, at the same row cap.

50,000 keys are read at 5,000 reads a second by Zipf's law (s = 1), 50 keys at a time. Each cache may load 500 rows a second
from one real PostgreSQL. All three read the same keys at the same moments from one real Redis, in forms of their own, so one
FLUSHALL empties all three. Ours is the real client and an updater process with `price`, the default. The others load in the
reader: a bucket of the application caps their rows, and a reader that finds the bucket empty gets nothing. dogpile is the best
installed peer here: it takes many keys in one call, and only one reader at a time loads a key.

All values are there before the flush, and readers read for a while, so that the old hit rate is measured and the policy has
learned. A hit rate is that of the last two seconds. The 99 % come late for every cache: keys that are read once in a minute
must be asked for first. So the reads that found nothing within the first half minute are reported beside it.
"""

from __future__ import annotations

import json
import tempfile
import time
from bisect import bisect
from collections import deque
from itertools import accumulate
from pathlib import Path
from random import Random

import psycopg
import redis
import rig
from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from table import row

from cacheupdater_client import Redis

KEYS = 50_000
READS = 5_000  # a second
ROWS = 500  # a second, for each cache
AT_ONCE = 50  # keys of one read
BURST_S = 0.2  # of the rows; the updater's burst has the same size
WARM_S, LIMIT_S = 10.0, 180.0
WINDOW_S = 2.0
FIRST_S = 30.0
LOOK_TURNS = 500  # reads between two looks whether all are back: five seconds
BACK = 0.99
TTL_S = 3600
GOAL = 1.0

CONFIG = """
version: 1
listen: ["{listen}"]
queue: {{url: "memory://"}}
cache: {{url: "{cache}"}}
sources:
  main: {{url: "{postgres}", budget: {rows}/s, burst: {burst_ms}ms, pool_size: 4}}
namespaces:
  item:
    key: "item:{{id:int}}"
    load: {{source: main, sql: "SELECT id, name, price, note FROM items WHERE id IN :id"}}
    ttl: 1h
    max_backlog: 50000
"""


class Capped:
    """The database as an application asks it that may load so many rows a second."""

    def __init__(self, url):
        self.connection = psycopg.connect(url.replace("+asyncpg", ""), autocommit=True)
        self.rows, self.at, self.loaded = 0.0, time.monotonic(), 0

    def load(self, numbers):
        """The rows of as many of these as can be paid, by number."""
        now = time.monotonic()
        self.rows = min(ROWS * BURST_S, self.rows + (now - self.at) * ROWS)
        self.at = now
        paid = list(numbers)[: int(self.rows)]
        if not paid:
            return {}
        self.rows -= len(paid)
        self.loaded += len(paid)
        sql = "SELECT id, name, price, note FROM items WHERE id = ANY(%s)"
        return {each[0]: as_item(each) for each in self.connection.execute(sql, [paid]).fetchall()}


def as_item(found):
    return dict(zip(("id", "name", "price", "note"), found, strict=True))


class Ours:
    """Reads through our client; an updater loads what is missing."""

    def __init__(self, url, emit):
        self.client, self.plain = Redis.from_url(url, emit=emit), redis.Redis.from_url(url)

    def fill(self, items):
        """As if they had been there: our client would announce each as a change."""
        put(self.plain, {f"item:{number}": item for number, item in items.items()})

    def read(self, numbers):
        """How many of these were found."""
        values = self.client.mget([f"item:{number}" for number in numbers])
        return sum(value is not None and json.loads(value)["id"] >= 0 for value in values)


class TtlAside:
    """Reads, and loads what is missing itself."""

    def __init__(self, url, database):
        self.client, self.database = redis.Redis.from_url(url), database

    def fill(self, items):
        put(self.client, {f"ttl:{number}": item for number, item in items.items()})

    def read(self, numbers):
        values = self.client.mget([f"ttl:{number}" for number in numbers])
        missing = {number for number, value in zip(numbers, values, strict=True) if value is None}
        found = sum(value is not None and json.loads(value)["id"] >= 0 for value in values)
        if missing and (loaded := self.database.load(missing)):
            self.fill(loaded)
        return found


class Dogpile:
    """The same by `get_or_create_multi`."""

    def __init__(self, url, database):
        self.region = make_region().configure(
            "dogpile.cache.redis",
            expiration_time=TTL_S,
            arguments={"url": url, "redis_expiration_time": 2 * TTL_S},
        )
        self.database, self.missing = database, 0

    def fill(self, items):
        self.region.set_multi({f"dogpile:{number}": item for number, item in items.items()})

    def read(self, numbers):
        self.missing = 0
        keys = [f"dogpile:{number}" for number in dict.fromkeys(numbers)]
        self.region.get_or_create_multi(keys, self.created, should_cache_fn=lambda item: item is not NO_VALUE)
        return len(numbers) - self.missing

    def created(self, *keys):
        numbers = [int(key.partition(":")[2]) for key in keys]
        self.missing = len(numbers)
        loaded = self.database.load(numbers)
        return [loaded.get(number, NO_VALUE) for number in numbers]


def put(client, values):
    with client.pipeline(transaction=False) as pipeline:
        for key, item in values.items():
            pipeline.set(key, json.dumps(item), ex=TTL_S)
        pipeline.execute()


class Readers:
    """The same reads for all caches, at the same moments."""

    def __init__(self, caches):
        self.caches = caches
        self.random = Random(13)
        numbers = list(range(1, KEYS + 1))
        self.random.shuffle(numbers)
        self.numbers = numbers
        self.weights = list(accumulate(1 / rank for rank in range(1, KEYS + 1)))

    def fill(self, items):
        for each in self.caches.values():
            each.fill(items)

    def drawn(self):
        most = self.weights[-1]
        return [self.numbers[bisect(self.weights, self.random.random() * most)] for _ in range(AT_ONCE)]

    def read_for(self, seconds, *, until=None):
        """For each cache and read, when it was and how many keys were found. Ends early once `until` says so."""
        hits = {name: [] for name in self.caches}
        began, turn = time.monotonic(), 0
        while time.monotonic() < began + seconds:
            turn += 1
            numbers = self.drawn()
            for name, cache in self.caches.items():
                hits[name].append((time.monotonic() - began, cache.read(numbers)))
            if turn % LOOK_TURNS == 0 and until is not None and until(hits):
                break
            time.sleep(max(0.0, began + turn * AT_ONCE / READS - time.monotonic()))
        return hits


def rate(reads):
    """The share of the reads that found a value."""
    return sum(found for _, found in reads) / (AT_ONCE * len(reads))


def back_after(reads, goal):
    """Seconds until the hit rate of the last two seconds has reached the goal; the limit if it has not."""
    window, found = deque(), 0
    for at, hits in reads:
        window.append((at, hits))
        found += hits
        while window[0][0] < at - WINDOW_S:
            found -= window.popleft()[1]
        if at >= WINDOW_S and found >= goal * AT_ONCE * len(window):
            return at
    return LIMIT_S


def missed(reads):
    """Reads of the first half minute that found nothing."""
    return sum(AT_ONCE - found for at, found in reads if at < FIRST_S)


def rows(old, new):
    """Ours against each other cache."""
    back = {name: back_after(reads, BACK * rate(old[name])) for name, reads in new.items()}
    lost = {name: missed(reads) for name, reads in new.items()}
    made = []
    for name in (each for each in new if each != "ours"):
        partly = ", ".join(
            f"{share:.0%} {back_after(new['ours'], share):.0f} and {back_after(new[name], share):.0f}"
            for share in (0.6, 0.8, 0.9)
        )
        per_s = len(new["ours"]) * AT_ONCE / new["ours"][-1][0]  # a busy machine reads more slowly
        reads = f"{per_s:.0f} reads/s of {KEYS} keys, Zipf; {ROWS} rows/s each; old hit rate {rate(old['ours']):.3f}"
        method = f"s until 99 % of the old hit rate: {back['ours']:.0f} / {back[name]:.0f} (limit {LIMIT_S:.0f}); hit rate {partly} s; {reads}"
        # a machine that reads too slowly brings nobody back in time: that is no success
        goal = None if back["ours"] == back[name] == LIMIT_S else GOAL
        made.append(row(f"P13-{name}", back["ours"] / back[name], goal, method=method))
        said = f"reads without a value in the first {FIRST_S:.0f} s: {lost['ours']} / {lost[name]}"
        made.append(row(f"P13-{name}-missed", lost["ours"] / lost[name], GOAL, method=said))
    return made


def run():
    """The rows for `build/bench.json`."""
    with rig.servers() as (postgres, cache), tempfile.TemporaryDirectory() as folder:
        listen = f"unix://{Path(folder, 'hints.sock')}"
        config = CONFIG.format(
            listen=listen, cache=cache, postgres=postgres, rows=ROWS, burst_ms=int(BURST_S * 1000)
        )
        with rig.updater(config, folder):
            caches = {
                "ours": Ours(cache, listen),
                "ttl": TtlAside(cache, Capped(postgres)),
                "dogpile": Dogpile(cache, Capped(postgres)),
            }
            with psycopg.connect(postgres.replace("+asyncpg", "")) as connection:
                sql = "SELECT id, name, price, note FROM items WHERE id <= %s"
                items = {each[0]: as_item(each) for each in connection.execute(sql, [KEYS])}
            readers = Readers(caches)
            readers.fill(items)
            old = readers.read_for(WARM_S)
            old = {name: reads[len(reads) // 2 :] for name, reads in old.items()}
            redis.Redis.from_url(cache).flushall()

            def all_back(hits):
                return all(
                    back_after(reads, BACK * rate(old[name])) < LIMIT_S for name, reads in hits.items()
                )

            return rows(old, readers.read_for(LIMIT_S, until=all_back))


if __name__ == "__main__":
    for each in run():
        print(each)
