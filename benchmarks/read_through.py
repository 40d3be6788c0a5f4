"""P3: the cost of a hit through a declared value, against redis-py's `get` plus the same decoding, and against other caches.

All read the same rows of some 230 bytes from one real redis-server on the same core, where a GET is cheapest and a difference
shows most. Each other cache is set up as its documentation begins, and keeps the rows in its own form. Its plain `get` counts:
that is its cheapest hit, cheaper than its decorators. Ours is the whole call of a declared value, with its hint. Flask-Caching's
`get` is only reported: it is redis-py's and `pickle.loads`, without any key of its own making, and nothing that does more can
cost less.

Short slices take turns, in another order in each round. redis-py has two of them, which shows the noise. **many** is `get_many`
of 100 keys against one MGET plus decoding. Hints go to a buffer that is drained between slices, as the sender's thread would do.

The cost is the CPU of the reader's thread and of the server. On a quiet core that is the wall of a read; on a busy machine the
other processes do not count.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import django
import msgspec
import redis
import redis.asyncio
import rig
from aiocache import RedisCache as Aiocache
from cashews import Cache as Cashews
from django.conf import settings
from django.core.cache import caches
from dogpile.cache import make_region
from flask import Flask
from flask_caching import Cache as FlaskCaching
from table import row

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Cache, Redis
from cacheupdater_client.asyncio import Cache as AsyncCache
from cacheupdater_client.asyncio import Redis as AsyncRedis

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE = 200  # hits in a row: some 15 ms
MANY = 100
MANY_SLICE = 50  # some 15 ms, too
BUDGET_S = {"sync": 40.0, "async": 40.0, "many": 20.0}  # of each group that takes turns
NUMBERS = range(SLICE)
GOAL, GOAL_MANY = 1.15, 1.05
GOALS = {"django": 1.0, "django-redis": 1.0, "dogpile": 1.0, "cashews": 1.0, "aiocache": 1.0}
EMIT = "memory://p3"
DJANGO = {
    "django": "django.core.cache.backends.redis.RedisCache",
    "django-redis": "django_redis.cache.RedisCache",
}
DECODE = msgspec.json.Decoder(dict).decode


class Other(NamedTuple):
    """Another cache, by what an application calls."""

    name: str
    get: Callable
    set: Callable

    def key(self, number):
        return f"{self.name}:{number}"


def item(number):
    return {"id": number, "name": f"item {number}", "price": number % 1000, "note": f"{number:032x}" * 6}


def load(number: int) -> dict:
    raise AssertionError(f"every read is a hit, {number} too")


async def load_awaited(number: int) -> dict:
    raise AssertionError(f"every read is a hit, {number} too")


# --- who takes turns: a slice of hits by each -----------------------------------------------------------


def sync_slices(url, ours):
    """Ours, redis-py twice, and the caches that are not awaited."""
    value = Cache(ours).value("item:{number:int}", ttl="1h")(load)

    def through():
        for number in NUMBERS:
            value(number)

    def stock(get):
        for number in NUMBERS:
            DECODE(get(f"item:{number}"))

    def plain(get, name):
        for number in NUMBERS:
            get(f"{name}:{number}")

    slices = {"ours": through}
    for name in ("redis-py", "redis-py again"):
        slices[name] = partial(stock, redis.Redis.from_url(url).get)
    for other in sync_others(url):
        for number in NUMBERS:
            other.set(other.key(number), item(number))
            assert other.get(other.key(number)) == item(number)
        slices[other.name] = partial(plain, other.get, other.name)
    return slices


def sync_others(url):
    stores = {name: {"BACKEND": backend, "LOCATION": url} for name, backend in DJANGO.items()}
    settings.configure(CACHES=stores | {"default": stores["django"]})
    django.setup()
    region = make_region().configure("dogpile.cache.redis", arguments={"url": url})
    app = Flask("p3")
    flask = FlaskCaching(app, config={"CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": url})
    within = app.extensions["cache"][flask]  # as its `get` finds it in a request
    return [
        *(Other(name, caches[name].get, caches[name].set) for name in DJANGO),
        Other("dogpile", region.get, region.set),
        Other("flask-caching", within.get, within.set),
    ]


async def async_slices(url, ours):
    """As `sync_slices`, for the caches that are awaited."""
    value = AsyncCache(ours).value("item:{number:int}", ttl="1h")(load_awaited)

    async def through():
        for number in NUMBERS:
            await value(number)

    async def stock(get):
        for number in NUMBERS:
            DECODE(await get(f"item:{number}"))

    async def plain(get, name):
        for number in NUMBERS:
            await get(f"{name}:{number}")

    slices = {"ours": through}
    for name in ("redis-py", "redis-py again"):
        slices[name] = partial(stock, redis.asyncio.Redis.from_url(url).get)
    for other in async_others(url):
        for number in NUMBERS:
            await other.set(other.key(number), item(number))
            assert await other.get(other.key(number)) == item(number)
        slices[other.name] = partial(plain, other.get, other.name)
    return slices


def async_others(url):
    cashews = Cashews()
    cashews.setup(url)
    aiocache = Aiocache(port=redis.connection.parse_url(url)["port"])
    return [Other("cashews", cashews.get, cashews.set), Other("aiocache", aiocache.get, aiocache.set)]


def many_slices(url, ours):
    """Ours, and redis-py twice."""
    value = Cache(ours).value("item:{number:int}", ttl="1h")(load)
    numbers = NUMBERS[:MANY]

    def through():
        for _ in range(MANY_SLICE):
            value.get_many(numbers)

    def stock(mget):
        for _ in range(MANY_SLICE):
            replies = mget([f"item:{number}" for number in numbers])
            {
                number: DECODE(reply)
                for number, reply in zip(numbers, replies, strict=True)
                if reply is not None
            }

    clients = {name: redis.Redis.from_url(url) for name in ("redis-py", "redis-py again")}
    return {"ours": through} | {name: partial(stock, client.mget) for name, client in clients.items()}


# --- turns and rows -------------------------------------------------------------------------------------


def spent(server):
    """Nanoseconds of CPU, of this thread and of the server."""
    if sys.platform != "linux":
        return time.perf_counter_ns()
    clock = ~server.pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    return time.thread_time_ns() + time.clock_gettime_ns(clock)


def turns(server, slices, *, hints, budget_s):
    """What the slices of each round have cost."""
    rounds, names, shuffled = [], list(slices), Random(3)
    deadline = time.perf_counter() + budget_s
    while time.perf_counter() < deadline:
        shuffled.shuffle(names)
        costs = {}
        for name in names:
            before = spent(server)
            slices[name]()
            costs[name] = spent(server) - before
            hints.drain()
        rounds.append(costs)
    return rounds


def rows(group, rounds, *, calls, goal):
    """Ours against redis-py and against each other cache."""
    names = [name for name in rounds[0] if not name.startswith(("ours", "redis-py"))]
    noise = statistics.median(each["redis-py again"] / each["redis-py"] for each in rounds)
    costs = [each["redis-py"] / calls / 1e3 for each in rounds]
    said = f"CPU of a read, of reader and server; median of {len(rounds)} rounds by turns, {calls} reads each"
    ratios = [each["ours"] * 2 / (each["redis-py"] + each["redis-py again"]) for each in rounds]
    made = [
        row(
            f"P3-{group}",
            statistics.median(ratios),
            goal,
            method=f"{said}; / redis-py's with the same decoding ({statistics.median(costs):.1f} us; redis-py again {noise:.3f})",
        )
    ]
    for name in sorted(names):
        ratio = statistics.median(each["ours"] / each[name] for each in rounds)
        stock = statistics.median(each[name] / each["redis-py"] for each in rounds)
        made.append(
            row(
                f"P3-{name}", ratio, GOALS.get(name), method=f"{said}; / its `get`, {stock:.2f} of redis-py's"
            )
        )
    return made


def sync_rows(server):
    ours = Redis.from_url(server.url, emit=EMIT)
    rounds = turns(server, sync_slices(server.url, ours), hints=ours._hints, budget_s=BUDGET_S["sync"])
    return rows("sync", rounds, calls=SLICE, goal=GOAL)


def async_rows(server):
    ours = AsyncRedis.from_url(server.url, emit=EMIT)
    with asyncio.Runner() as runner:
        slices = runner.run(async_slices(server.url, ours))
        awaited = {name: (lambda work=work: runner.run(work())) for name, work in slices.items()}
        rounds = turns(server, awaited, hints=ours._hints, budget_s=BUDGET_S["async"])
    return rows("async", rounds, calls=SLICE, goal=GOAL)


def many_rows(server):
    ours = Redis.from_url(server.url, emit=EMIT)
    rounds = turns(server, many_slices(server.url, ours), hints=ours._hints, budget_s=BUDGET_S["many"])
    return rows(f"many-{MANY}", rounds, calls=MANY_SLICE, goal=GOAL_MANY)


def run():
    """The rows for `build/bench.json`."""
    rig.pin(-1)
    with RedisServer() as server:
        with redis.Redis.from_url(server.url) as client:
            client.mset({f"item:{number}": msgspec.json.encode(item(number)) for number in NUMBERS})
        return [*sync_rows(server), *async_rows(server), *many_rows(server)]


if __name__ == "__main__":
    for each in run():
        print(each)
