"""P11: the time from the client's flush to the fresh value in Redis, at half of the rate that the updater reaches.

A real updater process (`cacheupdater run`) runs between a real PostgreSQL and a real Redis. First it gets as much as it can
take: a bounded number of hints is always on its way, and Redis' own count of SETs shows how many keys are refreshed per
second. Then it gets half of that rate: ten clients, each with its own outbox and socket as in the library, flush every 100
ms, one after the other, all different keys.

The statement puts clock_timestamp() into the value, so a fresh value is one whose row was read after the flush. One key of
each flush is watched. One MGET asks for the watched keys every two milliseconds, from the moment before their packs go to the
socket until the fresh value is there. The figure includes the cost of watching: its own turns, and a share of the servers'
core.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import tempfile
import time
from datetime import datetime

import redis
import rig
from table import row

from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol import wire
from cacheupdater_client.transports import link_to

GOAL_MS = 50.0
CLIENTS = 10
FLUSH_S = 0.1
ON_THE_WAY = 12_000  # hints that wait or are served while the rate is sought
WARM_S, SEEK_S, WATCH_S = 2.0, 6.0, 12.0
WATCHED = 1  # key of each flush
LOOK_S = 0.002  # between looks, which take time from the servers' core
LOST_S = 5.0

CONFIG = """
version: 1
listen: ["{listen}"]
queue: {{url: "memory://"}}
cache: {{url: "{cache}"}}
sources:
  main: {{url: "{postgres}", budget: 1000000/s, pool_size: 4}}
namespaces:
  item:
    key: "item:{{id:int}}"
    load: {{source: main, sql: "SELECT id, name, price, note, clock_timestamp() AS read FROM items WHERE id IN :id"}}
    refresh: {{every: 200ms}}
    max_backlog: 100000
"""


class Client:
    """One process' sender, without its thread."""

    def __init__(self, address):
        self.outbox, self.link = Outbox(), link_to(address)()

    def put(self, keys):
        self.outbox.add(wire.TOUCH, dict.fromkeys(keys, 1))

    def turn(self):
        self.link.turn(self.outbox, time.monotonic(), time.time_ns() // 1_000_000)


class Traffic:
    """Keys in a random order, each again only after all others."""

    def __init__(self, address, cache):
        numbers = list(range(1, rig.ROWS + 1))
        random.Random(11).shuffle(numbers)
        self.keys = (b"item:%d" % each for each in itertools.cycle(numbers))
        self.clients = [Client(address) for _ in range(CLIENTS)]
        self.redis = redis.Redis.from_url(cache)
        self.sent = 0

    def flush(self, client, count):
        keys = list(itertools.islice(self.keys, count))
        self.sent += count
        client.put(keys)
        client.turn()
        return keys

    def refreshed(self):
        """The number of keys written since Redis began: each is a value and a floor."""
        return self.redis.info("commandstats").get("cmdstat_set", {"calls": 0})["calls"] // 2

    def rate_reached(self):
        """Keys refreshed per second if there is always more to do."""
        began, marks = time.perf_counter(), []
        for client in itertools.cycle(self.clients):
            now, done = time.perf_counter() - began, self.refreshed()
            if now >= WARM_S:
                marks.append((now, done))
            if now >= WARM_S + SEEK_S:
                break
            if self.sent - done < ON_THE_WAY:
                self.flush(client, 1000)
            client.turn()
            time.sleep(0.002)
        (first, before), (last, after) = marks[0], marks[-1]
        return (after - before) / (last - first)

    def settle(self):
        """Waits until no hint is on its way any more."""
        deadline, done = time.perf_counter() + LOST_S, -1
        while done != (done := self.refreshed()) and time.perf_counter() < deadline:
            for client in self.clients:
                client.turn()
            time.sleep(0.3)

    def latencies(self, rate):
        """Seconds from flush to fresh value of every watched key at this rate, and the rate that was reached."""
        watched, took = {}, []
        size, pause = round(rate * FLUSH_S / CLIENTS), FLUSH_S / CLIENTS
        began, before = time.perf_counter(), self.refreshed()
        due = began
        for client in itertools.cycle(self.clients):
            while time.perf_counter() < due or (watched and due > began + WATCH_S + pause):
                took += self.look(watched)
                time.sleep(LOOK_S)
            due += pause
            if due > began + WATCH_S + 2 * pause:
                return took, (self.refreshed() - before) / (time.perf_counter() - began)
            at, stamp = time.perf_counter(), time.time_ns() / 1e9
            keys = self.flush(client, size)
            for key in random.sample(keys, WATCHED):
                watched[key] = at, stamp
        raise AssertionError

    def look(self, watched):
        """The keys that have become fresh since the last look. A key that never does counts as infinitely late."""
        fresh = []
        keys = list(watched)
        values = self.redis.mget(keys) if keys else []
        now = time.perf_counter()
        for key, value in zip(keys, values, strict=True):
            at, stamp = watched[key]
            if value and datetime.fromisoformat(json.loads(value)["read"]).timestamp() >= stamp:
                fresh.append(now - at)
                del watched[key]
            elif now - at > LOST_S:
                fresh.append(float("inf"))
                del watched[key]
        return fresh


def measure(postgres, cache, folder):
    address = f"unix://{folder}/hints.sock"
    with rig.updater(CONFIG.format(listen=address, cache=cache, postgres=postgres), folder):
        traffic = Traffic(address, cache)
        reached = traffic.rate_reached()
        traffic.settle()
        took, rate = traffic.latencies(reached / 2)
    return reached, rate, sorted(took)


def run():
    """The rows for `build/bench.json`."""
    with rig.servers() as (postgres, cache), tempfile.TemporaryDirectory() as folder:
        reached, rate, took = measure(postgres, cache, folder)
    p99 = took[int(len(took) * 0.99)] * 1000
    method = (
        f"ms from a flush to the fresh value (clock_timestamp() in it, polled by MGET), p99 of {len(took)} keys "
        f"(median {statistics.median(took) * 1000:.1f}); {rate / 1000:.1f} k keys/s of {reached / 1000:.1f} k reached, "
        f"{CLIENTS} clients that flush every {FLUSH_S * 1000:.0f} ms"
    )
    return [row("P11", p99, GOAL_MS, method=method)]


if __name__ == "__main__":
    for each in run():
        print(each)
