"""P3: the cost of a hit through a declared value, against redis-py's `get` plus the same decoding.

Both read the same values of a real redis-server on the same core, where a GET is cheapest and a difference shows most: a JSON
object of some 230 bytes. Short slices take turns; beside them stock runs against stock, which shows the noise. **many** is
`get_many` of 100 keys against one MGET plus decoding. Hints go to a buffer that is drained between slices, as the sender's
thread would do.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import msgspec
import redis
import redis.asyncio
import rig
from table import row

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Cache, Redis
from cacheupdater_client.asyncio import Cache as AsyncCache
from cacheupdater_client.asyncio import Redis as AsyncRedis

SLICE = 200  # hits in a row: some 15 ms
MANY = 100
MANY_SLICE = 10
BUDGET_S = 25.0  # of each row
NUMBERS = range(SLICE)
GOAL, GOAL_MANY = 1.15, 1.05
EMIT = "memory://p3"


def item(number):
    return {"id": number, "name": f"item {number}", "price": number % 1000, "note": f"{number:032x}" * 6}


def load(number: int) -> dict:
    raise AssertionError(f"every read is a hit, {number} too")


async def load_awaited(number: int) -> dict:
    raise AssertionError(f"every read is a hit, {number} too")


def sync_row(url):
    plain, ours = redis.Redis.from_url(url), Redis.from_url(url, emit=EMIT)
    value = Cache(ours).value("item:{number:int}", ttl="1h")(load)
    get, decode = plain.get, msgspec.json.Decoder(dict).decode

    def stock():
        for number in NUMBERS:
            decode(get(f"item:{number}"))

    def through():
        for number in NUMBERS:
            value(number)

    return compared("P3-sync", stock, through, ours, calls=SLICE, goal=GOAL)


def async_row(url):
    loop = asyncio.new_event_loop()
    plain, ours = redis.asyncio.Redis.from_url(url), AsyncRedis.from_url(url, emit=EMIT)
    value = AsyncCache(ours).value("item:{number:int}", ttl="1h")(load_awaited)
    get, decode = plain.get, msgspec.json.Decoder(dict).decode

    async def stock():
        for number in NUMBERS:
            decode(await get(f"item:{number}"))

    async def through():
        for number in NUMBERS:
            await value(number)

    def run(work):
        return lambda: loop.run_until_complete(work())

    try:
        return compared("P3-async", run(stock), run(through), ours, calls=SLICE, goal=GOAL)
    finally:
        loop.run_until_complete(plain.aclose())
        loop.run_until_complete(ours.aclose())
        loop.close()


def many_row(url):
    plain, ours = redis.Redis.from_url(url), Redis.from_url(url, emit=EMIT)
    value = Cache(ours).value("item:{number:int}", ttl="1h")(load)
    numbers, decode = NUMBERS[:MANY], msgspec.json.Decoder(dict).decode

    def stock():
        for _ in range(MANY_SLICE):
            replies = plain.mget([f"item:{number}" for number in numbers])
            {
                number: decode(reply)
                for number, reply in zip(numbers, replies, strict=True)
                if reply is not None
            }

    def through():
        for _ in range(MANY_SLICE):
            value.get_many(numbers)

    return compared("P3-many-100", stock, through, ours, calls=MANY_SLICE, goal=GOAL_MANY)


def compared(name, stock, through, ours, *, calls, goal):
    """The median of the ratios of interleaved rounds."""
    ratios, noise, costs = [], [], []
    deadline = time.perf_counter() + BUDGET_S
    while time.perf_counter() < deadline:
        order = (stock, through, through, stock) if len(ratios) % 2 else (through, stock, stock, through)
        took = []
        for work in order:
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
            ours._hints.drain()
        stock_took = [cost for cost, work in zip(took, order, strict=True) if work is stock]
        ratios.append((sum(took) - sum(stock_took)) / sum(stock_took))
        noise.append(stock_took[0] / stock_took[1])
        costs.append(sum(stock_took) / 2 / calls * 1e6)
    method = (
        f"wall of a read / redis-py's with the same decoding, client and server on one core: {statistics.median(costs):.1f} us; "
        f"stock against stock {statistics.median(noise):.3f}; median of {len(ratios)} interleaved rounds of {calls}"
    )
    return row(name, statistics.median(ratios), goal, method=method)


def run():
    """The rows for `build/bench.json`."""
    rig.pin(-1)
    with RedisServer() as server:
        with redis.Redis.from_url(server.url) as client:
            client.mset({f"item:{number}": msgspec.json.encode(item(number)) for number in NUMBERS})
        return [sync_row(server.url), async_row(server.url), many_row(server.url)]


if __name__ == "__main__":
    for each in run():
        print(each)
