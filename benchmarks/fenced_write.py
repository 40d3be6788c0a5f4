"""P9: the client's cost of a fenced batch write, against redis-py's own pipeline of SET PX.

Both write the same 100 keys of 287 bytes to the same server, by turns, in one process. The cost is this process's CPU time,
without the server's share and the network's. The figure is the median of the ratios of all pairs of slices. Each slice writes
new bytes, so that no write is an `unchanged`.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import redis.asyncio
from table import row

from cacheupdater.adapters.writer_redis import RedisWriter
from cacheupdater.local.redis_server import RedisServer
from cacheupdater.ports import Entry

GOAL = 0.25
BATCH = 100
SLICE = 20  # batches in a row before the other's turn: some 4 ms, so short that noise affects both
ROUNDS = 101
BUDGET_S = 20.0
TTL_MS = 300_000
VALUE_BYTES = 287


def batches(number):
    value = b"%07d" % number + b"x" * (VALUE_BYTES - 7)
    return [Entry(b"product:%d" % i, value, TTL_MS) for i in range(BATCH)]


async def fenced(writer, entries):
    token = await writer.token()
    await writer.write(token, entries)


async def pipelined(client, entries):
    pipe = client.pipeline(transaction=False)
    for key, value, ttl_ms in entries:
        pipe.set(key, value, px=ttl_ms)
    await pipe.execute()


async def cpu_of(write, target, number):
    slices = [batches(number + i) for i in range(SLICE)]
    began = time.process_time()
    for entries in slices:
        await write(target, entries)
    return time.process_time() - began


async def measure(url):
    writer, client = RedisWriter(url), redis.asyncio.Redis.from_url(url)
    await cpu_of(fenced, writer, 0)
    await cpu_of(pipelined, client, 1)
    ratios, costs = [], []
    deadline = time.perf_counter() + BUDGET_S
    for n in range(ROUNDS):
        first, second = ((fenced, writer), (pipelined, client))[:: 1 if n % 2 else -1]
        spent = {
            write: await cpu_of(write, target, (n * 2 + i) * SLICE)
            for i, (write, target) in enumerate((first, second))
        }
        ratios.append(spent[fenced] / spent[pipelined])
        costs.append(spent[fenced])
        if time.perf_counter() > deadline:
            break
    await writer.close()
    await client.aclose()
    return statistics.median(ratios), statistics.median(costs) / (SLICE * BATCH) * 1e6, len(ratios)


def run():
    """The rows for `build/bench.json`."""
    with RedisServer() as server:
        ratio, micros, rounds = asyncio.run(measure(server.url))
    method = (
        f"client CPU of token + fenced write of {BATCH} keys ({micros:.2f} us a key) / redis-py asyncio pipeline of "
        f"SET PX, {VALUE_BYTES} B values; median of {rounds} interleaved rounds of {SLICE} batches, process_time"
    )
    return [row("P9", ratio, GOAL, method=method)]


if __name__ == "__main__":
    for each in run():
        print(each)
