"""P1: what a GET through our client costs more than redis-py's.

**Sync, asyncio**: the network is stubbed. A connection answers each GET at once from memory, so that all of redis-py's
own code runs (retries, metrics, pool, reply callbacks) but no socket: what is left of a difference is ours. The hints
go where they go in production, a buffer with a lease, which is renewed between slices as the sender would do; the
sender's own work is in P1-wire and P2. Goal and row: nanoseconds added to a hit and to a miss, at the rate of one miss
in twenty; each alone is in the method.

**Wire**: real GETs to a real redis-server on this very core, where a GET is cheapest and a difference shows most. Our
client's sender drains to an updater's listener (a process on the other core that takes frames and forgets them).
Short slices by turns; beside it stock against stock, which shows the noise.
"""

from __future__ import annotations

import select
import statistics
import subprocess
import sys
import tempfile
import time

import redis
import redis.asyncio
import rig
import uvloop
from table import row

from cacheupdater.testing.redis_server import RedisServer
from cacheupdater_client import Redis, close, stats
from cacheupdater_client.asyncio import Redis as AsyncRedis

SLICE = 500  # stubbed GETs in a row: some 2 ms
ROUNDS = 400
MISSES = 0.05
WIRE_SLICE = 300
WIRE_ROUNDS = 400
BUDGET_S = 25.0  # each of the three
KEYS = [f"product:{n:07d}" for n in range(SLICE)]
VALUE = b"x" * 1024

SINK = """
import asyncio, sys
from cacheupdater_client import wire
from cacheupdater.adapters.listener_stream import StreamListener
class Sink:
    def offer(self, partition, payload): return True
class Silent:
    def count(self, *_, **__): ...
    def level(self, *_, **__): ...
async def main():
    listener = StreamListener(Sink(), wire.Hello(12, [b"product:"]), observer=Silent())
    await listener.start([sys.argv[1]])
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await listener.close()
asyncio.run(main())
"""


class Stub(redis.Connection):
    """Answers every command with the same bytes, or with nothing."""

    reply = VALUE

    def connect(self): ...

    def can_read(self, *_):
        return False

    def send_command(self, *_, **__): ...

    def read_response(self, *_, **__):
        return Stub.reply


class AsyncStub(redis.asyncio.Connection):
    """The same without waiting."""

    async def connect(self): ...

    async def can_read(self, *_):
        return False

    async def send_command(self, *_, **__): ...

    async def read_response(self, *_, **__):
        return Stub.reply


def stubbed(kind, pool, stub, **options):
    return kind(connection_pool=pool(connection_class=stub), **options)


def refilled(client):
    """As the sender's turn does: what waits is taken, and all places are free again. The sender itself never starts."""
    client._hints.drain()


def spent(client, reply):
    """CPU nanoseconds per GET."""
    Stub.reply = reply
    get = client.get
    began = time.process_time_ns()
    for key in KEYS:
        get(key)
    return (time.process_time_ns() - began) / SLICE


async def spent_async(client, reply):
    Stub.reply = reply
    get = client.get
    began = time.process_time_ns()
    for key in KEYS:
        await get(key)
    return (time.process_time_ns() - began) / SLICE


def added(plain, ours, measure):
    """Nanoseconds that a hit and a miss cost more, what stock costs, and stock's own noise; each a median.

    These are times and no ratios, and whoever shares a core makes everything slower: so the quarter of the rounds
    counts in which redis-py itself was fastest.
    """
    rounds = {VALUE: [], None: []}
    deadline = time.perf_counter() + BUDGET_S
    for number in range(ROUNDS):
        for reply, seen in rounds.items():
            order = (plain, ours, ours, plain) if number % 2 else (ours, plain, plain, ours)
            took = [measure(each, reply) for each in order]
            ours_took, plain_took = (
                [cost for cost, each in zip(took, order, strict=True) if each is one] for one in (ours, plain)
            )
            seen.append(
                (sum(plain_took), (sum(ours_took) - sum(plain_took)) / 2, plain_took[0] - plain_took[1])
            )
            refilled(ours)
        if time.perf_counter() > deadline:
            break
    quiet = {reply: sorted(seen)[: len(seen) // 4 + 1] for reply, seen in rounds.items()}
    hit, miss = (statistics.median(more for _, more, _ in each) for each in quiet.values())
    cost = statistics.median(both / 2 for both, _, _ in quiet[VALUE])
    noise = statistics.median(abs(between) for _, _, between in quiet[VALUE])
    return hit, miss, cost, noise, len(rounds[None])


def stub_row(name, plain, ours, measure):
    hit, miss, cost, noise, rounds = added(plain, ours, measure)
    method = (
        f"CPU ns added to a GET of {cost:.0f} ns, stubbed connection, {MISSES:.0%} misses: hit {hit:+.0f}, miss {miss:+.0f}, "
        f"stock against stock {noise:.0f}; median of the quietest quarter of {rounds} interleaved rounds of {SLICE} GETs"
    )
    return row(name, (1 - MISSES) * hit + MISSES * miss, 250.0, method=method)


def sync_row():
    pool = redis.ConnectionPool
    ours = stubbed(Redis, pool, Stub, emit="memory://p1")
    return stub_row("P1-sync", stubbed(redis.Redis, pool, Stub), ours, spent)


def async_row():
    pool, loop = redis.asyncio.ConnectionPool, uvloop.new_event_loop()
    ours = stubbed(AsyncRedis, pool, AsyncStub, emit="memory://p1a")
    plain = stubbed(redis.asyncio.Redis, pool, AsyncStub)
    made = stub_row(
        "P1-async", plain, ours, lambda client, reply: loop.run_until_complete(spent_async(client, reply))
    )
    loop.close()
    return made


# --- the wire -------------------------------------------------------------------------------------------


def wall(client, keys):
    get = client.get
    began = time.perf_counter()
    for key in keys:
        get(key)
    return time.perf_counter() - began


def wire_rows():
    rig.pin(-1)
    with RedisServer() as server, tempfile.TemporaryDirectory() as folder:
        rig.pin(0)
        address = f"unix://{folder}/hints.sock"
        sink = subprocess.Popen(
            [sys.executable, "-c", SINK, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        rig.pin(-1)
        try:
            assert select.select([sink.stdout], [], [], 20)[0], "the listener does not start"
            assert sink.stdout.readline() == "ready\n"
            return measured_wire(server.url, address)
        finally:
            close()
            sink.communicate("", timeout=10)


def measured_wire(url, address):
    plain, other, ours = (
        redis.Redis.from_url(url),
        redis.Redis.from_url(url),
        Redis.from_url(url, emit=address),
    )
    keys = KEYS[:WIRE_SLICE]
    for key in keys:
        plain.set(key, VALUE)
    clients = [plain, other, ours]
    for each in clients * 3:
        wall(each, keys)
    ratios, noise, costs = [], [], []
    deadline = time.perf_counter() + BUDGET_S
    while len(ratios) < WIRE_ROUNDS and time.perf_counter() < deadline:
        shift = len(ratios) % 3
        took = {each: wall(each, keys) for each in clients[shift:] + clients[:shift]}
        ratios.append(took[ours] / ((took[plain] + took[other]) / 2))
        noise.append(took[other] / took[plain])
        costs.append(took[plain] / WIRE_SLICE * 1e6)
    close()
    said = stats()
    assert said["delivered"] > len(ratios) * WIRE_SLICE * 0.9, said
    method = (
        f"wall of sync GETs of 1 KiB, client and redis-server on one core, {said['delivered']} hints delivered to a listener "
        f"meanwhile / redis-py ({statistics.median(costs):.1f} us); "
        f"median of {len(ratios)} interleaved rounds of {WIRE_SLICE}"
    )
    return [
        row("P1-wire", statistics.median(ratios), 1.02, method=method),
        row("P1-wire-AA", statistics.median(noise), None, method="redis-py / redis-py in the same rounds"),
    ]


def run():
    """The rows for `build/bench.json`."""
    rig.pin(-1)
    return [*wire_rows(), sync_row(), async_row()]


if __name__ == "__main__":
    for each in run():
        print(each)
