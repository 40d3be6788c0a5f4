"""An application whose Redis, hints and loaders are absent or fail: what its reads get, beside what redis-py's `get` gets.

python failing.py EMIT READS REDIS...

REDIS is `name=url`, and the URL has the timeout of the socket. For each Redis, each loader and each kind of client, one reader asks for a key that is there and for one
that is not. Then READS reads pile up hints, and a refresh begins whose loader never ends. Each outcome is a line of JSON: `cell`,
what `stock` got, what `ours` got, their seconds (`stock_s`, `ours_s`), and how often the loader was called. The last line has
the hints and the memory; the process then ends by itself. Run by tests/integration/test_failing_servers.py.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import resource
import sys
import threading
import time

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

import cacheupdater_client
import cacheupdater_client.asyncio

PATIENCE_S = 60.0
TRIES = 6
SLACK_S = 0.08  # by which ours may take longer than redis-py, in the best of TRIES: less than one more wait for a Redis that hangs
TIMEOUT_S = 0.2  # of a load
HUNG_S = 4 * TIMEOUT_S  # a sync loader that ends by itself, for nobody can interrupt it
LOADERS = ("returns", "raises", "hangs")
MANY = 200
ROWS = {"there": {"from": "redis"}, "absent": {"from": "the loader"}}


class Refused(Exception):
    """The loader's own error."""


def client_of(kind, url, **emit):
    retry = (AsyncRetry if "asyncio" in kind.__module__ else Retry)(NoBackoff(), 1)  # else it takes seconds
    return kind.from_url(url, retry=retry, **emit)


def declared(cache, kind, how, calls):
    def returns(id: str) -> dict:
        calls.append(how)
        if how == "raises":
            raise Refused
        if how == "hangs":
            time.sleep(HUNG_S)
        return ROWS[id]

    async def awaited(id: str) -> dict:
        if how != "hangs":
            return returns(id)
        calls.append(how)
        await asyncio.Event().wait()
        raise AssertionError

    settings = {"ttl": "1h", "timeout": f"{TIMEOUT_S * 1000:g}ms", "missing": "0s"}
    return cache.value(f"{kind}-{how}:{{id}}", **settings)(awaited if kind == "asyncio" else returns)


async def outcome_of(read, *args):
    """What came of a read, and the seconds."""
    began = time.monotonic()
    try:
        got = read(*args)
        got = await got if inspect.isawaitable(got) else got
        said = ["value", json.loads(got) if isinstance(got, bytes) else got]
    except Exception as e:  # noqa: BLE001  what it may be is the question
        said = ["error", type(e).__name__, str(e)]
    return said, time.monotonic() - began


async def compared(cell, stock, ours, calls):
    """One cell. Other processes only ever add to a time, so a slow read may try again."""
    for _ in range(TRIES):
        calls.clear()
        stock_said, stock_s = await outcome_of(*stock)
        ours_said, ours_s = await outcome_of(*ours)
        if ours_s <= stock_s + SLACK_S or calls:
            break
    said = {"cell": cell, "stock": stock_said, "ours": ours_said, "stock_s": stock_s, "ours_s": ours_s}
    print(json.dumps(said | {"calls": len(calls)}), flush=True)


async def cells(name, url, emit):
    """All cells of one Redis."""
    sync, awaited = client_of(redis.Redis, url), client_of(redis.asyncio.Redis, url)
    own = client_of(cacheupdater_client.Redis, url, emit=emit)
    own_awaited = client_of(cacheupdater_client.asyncio.Redis, url, emit=emit)
    kinds = {
        "sync": (sync, own, cacheupdater_client.Cache),
        "asyncio": (awaited, own_awaited, cacheupdater_client.asyncio.Cache),
    }
    calls = []
    for kind, (stock, ours, cache) in kinds.items():
        for key in ROWS:
            spelled = f"{kind}-returns:{key}"
            await compared([name, "get", kind, None, key], (stock.get, spelled), (ours.get, spelled), calls)
        for how in LOADERS:
            value = declared(cache(ours), kind, how, calls)
            for key in ROWS:
                with_stock = stock.get, f"{kind}-{how}:{key}"
                await compared([name, "declared", kind, how, key], with_stock, (value, key), calls)
    await awaited.aclose()
    await own_awaited.aclose()


def pile_up(url, emit, reads):
    """Reads of keys that are all different. The memory that they took, in MB."""
    client = client_of(cacheupdater_client.Redis, url, emit=emit)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for at in range(0, reads, MANY):
        client.mget([f"pile:{number:012d}" for number in range(at, at + MANY)])
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


async def leave_refreshes_behind(url, emit):
    """Begins a refresh with each kind of cache whose loader never ends. The process ends in their midst."""
    begun, never = threading.Semaphore(0), threading.Event()
    settings = {"ttl": "1h", "refresh_after": "100ms", "timeout": "30s"}

    def old(id: int) -> int:
        begun.release()
        never.wait()
        return id

    async def old_awaited(id: int) -> int:
        begun.release()
        await asyncio.Event().wait()
        return id

    sync = cacheupdater_client.Cache(client_of(cacheupdater_client.Redis, url, emit=emit))
    awaited = cacheupdater_client.asyncio.Cache(client_of(cacheupdater_client.asyncio.Redis, url, emit=emit))
    assert sync.value("old:{id:int}", **settings)(old)(7) == 1  # whose age nobody knows: it counts as old
    assert await awaited.value("old:{id:int}", **settings)(old_awaited)(8) == 1
    deadline = time.monotonic() + PATIENCE_S
    for _ in range(2):
        while not begun.acquire(blocking=False):
            assert time.monotonic() < deadline, "no refresh has begun"
            await asyncio.sleep(0.005)


def counted(emit, reads):
    """The statistics, once the sender's thread has counted all reads: a busy machine gives it little time."""
    deadline = time.monotonic() + PATIENCE_S
    while (stats := cacheupdater_client.stats())["emitted"] < reads and emit != "none":
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return stats


def main(emit, reads, *servers):
    urls = dict(each.split("=", 1) for each in servers)
    with redis.Redis.from_url(urls["up"]) as plain:
        plain.mset(
            {
                f"{kind}-{how}:there": json.dumps(ROWS["there"])
                for kind in ("sync", "asyncio")
                for how in LOADERS
            }
        )
        plain.mset({"old:7": "1", "old:8": "1"})
    for name, url in urls.items():
        asyncio.run(cells(name, url, emit))
    grown_mb = pile_up(urls["up"], emit, int(reads))
    asyncio.run(leave_refreshes_behind(urls["up"], emit))
    print(json.dumps({"grown_mb": grown_mb, **counted(emit, int(reads))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
