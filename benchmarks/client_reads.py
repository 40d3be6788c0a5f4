"""P1: the cost of a GET through our client beyond that of redis-py.

**Sync, asyncio**: the network is stubbed at the edge of redis-py: `execute_command` answers at once, for both clients, so the
remaining difference is our cost. Hints go to a buffer with a lease, as in production. The lease is renewed between slices, as
the sender would do; the sender's own work is in P1-wire. The row is the nanoseconds added to a read at one miss in twenty; the
text of the row has those of a hit and of a miss alone.

**Wire**: real GETs to a real redis-server on the same core, where a GET is cheapest and a difference shows most. Our client's
sender drains to an updater's listener (a process on the other core that takes frames and forgets them). Short slices take
turns; beside it stock runs against stock, which shows the noise.

**MGET**: the same with MGETs of 1, 100 and 50,000 keys, of each length and type in turn; the row is the worst of them. The
hints of 50,000 keys are drained between slices, as the sender's thread would do meanwhile.
"""

from __future__ import annotations

import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import redis
import redis.asyncio
import rig
import uvloop
from table import row

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client import Redis, close, stats
from cacheupdater_client.asyncio import Redis as AsyncRedis

if TYPE_CHECKING:
    from cacheupdater_client.buffer import Buffer

SLICE = 500  # stubbed GETs in a row: some 2 ms
ROUNDS = 400
MISSES = 0.05
WIRE_SLICE = 300
WIRE_ROUNDS = 400
BUDGET_S = 25.0  # of each measurement except MGET
MGETS = {1: 60, 100: 10, 50_000: 1}  # keys: calls in a slice
MGET_BUDGET_S = 6.0  # for each number and form of keys
FORMS = {
    "17 characters": "product:{:09d}".format,
    "47 characters": "app:acme:shop:products:descriptions:{:011d}".format,
    "17 bytes": lambda number: b"product:%09d" % number,
}
KEYS = [f"product:{n:07d}" for n in range(SLICE)]
VALUE = b"x" * 1024

SINK = Path(__file__).with_name("sink.py")


class Stub:
    """The answers of redis-py's edge while the network is stubbed."""

    reply = VALUE


def answer(*_, **__):
    return Stub.reply


async def answer_async(*_, **__):
    return Stub.reply


def refilled(client):
    """Drains the buffer as the sender's turn does, so that all places are free again. The sender itself never starts."""
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
    """The nanoseconds added to a hit and to a miss, the cost of stock, and the noise of stock; each a median.

    These are times and not ratios, so another process on the core would make all of them larger. Therefore only the quarter
    of the rounds counts in which redis-py itself was fastest.
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
        f"CPU ns added to a GET, network stubbed: hit {hit:+.0f}, miss {miss:+.0f}; stub alone {cost:.0f}, stock against "
        f"stock {noise:.0f}; median of the quietest quarter of {rounds} interleaved rounds of {SLICE} GETs"
    )
    return row(name, (1 - MISSES) * hit + MISSES * miss, 250.0, method=method)


def sync_row():
    with mock.patch.object(redis.Redis, "execute_command", answer):
        return stub_row("P1-sync", redis.Redis(), Redis(emit="memory://p1"), spent)


def asleep_row():
    """A client that found no updater: its hints are discarded while the sender's thread looks for one."""
    ours = Redis(emit="memory://p1s")
    hints: Buffer = ours._hints
    hints.sleep()
    with mock.patch.object(redis.Redis, "execute_command", answer):
        return stub_row("P1-asleep", redis.Redis(), ours, spent)


def async_row():
    loop = uvloop.new_event_loop()
    with mock.patch.object(redis.asyncio.Redis, "execute_command", answer_async):
        made = stub_row(
            "P1-async",
            redis.asyncio.Redis(),
            AsyncRedis(emit="memory://p1a"),
            lambda client, reply: loop.run_until_complete(spent_async(client, reply)),
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
            [sys.executable, SINK, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


# --- MGET -----------------------------------------------------------------------------------------------


def mget_rows():
    rig.pin(0)
    with RedisServer() as server:
        plain = redis.Redis.from_url(server.url)
        ours = Redis.from_url(server.url, emit="memory://p1")
        forms = {form: [make(number) for number in range(max(MGETS))] for form, make in FORMS.items()}
        for keys in forms.values():
            for at in range(0, len(keys), 1000):
                plain.mset(dict.fromkeys(keys[at : at + 1000], b"x" * 100))
        rows = [mget_row(plain, ours, size, forms) for size in MGETS]
    rig.pin(-1)
    return rows


def mget_row(plain, ours, size, forms):
    found = {form: mget_ratio(plain, ours, keys[:size], MGETS[size]) for form, keys in forms.items()}
    said = ", ".join(f"{form} {ratio:.3f} of {cost:.0f} us" for form, (ratio, cost, _) in found.items())
    rounds = min(rounds for *_, rounds in found.values())
    method = f"wall of an MGET of {size} keys / redis-py's, client and server on one core: {said}; medians of {rounds} or more interleaved rounds; the worst counts"
    return row(f"P1-mget-{size}", max(ratio for ratio, *_ in found.values()), 1.1, method=method)


def mget_ratio(plain, ours, keys, calls):
    """The median ratio, what redis-py took in microseconds, and the number of rounds."""
    ratios, costs = [], []
    deadline = time.perf_counter() + MGET_BUDGET_S
    while time.perf_counter() < deadline:
        order = (plain, ours, ours, plain) if len(ratios) % 2 else (ours, plain, plain, ours)
        took = {plain: 0.0, ours: 0.0}
        for each in order:
            began = time.perf_counter()
            for _ in range(calls):
                each.mget(keys)
            took[each] += time.perf_counter() - began
            refilled(ours)
        ratios.append(took[ours] / took[plain])
        costs.append(took[plain] / 2 / calls * 1e6)
    return statistics.median(ratios), statistics.median(costs), len(ratios)


def run():
    """The rows for `build/bench.json`."""
    rig.pin(-1)
    return [*wire_rows(), sync_row(), asleep_row(), async_row(), *mget_rows()]


if __name__ == "__main__":
    for each in run():
        print(each)
