"""A program that changes rows and announces nothing: another application, a person at a prompt, a bulk import.

It has no client and no Redis. The world runs one of them in each schedule with a feed, and nothing that happens to updaters happens to it.
"""

from __future__ import annotations

import asyncio

from simulated.feeds import BRANDS, brand_of

LATE_S = (0.05, 0.6)  # a slow transaction commits so long after its last statement
STALL_S = 0.35  # for a read, its hint, and a load
SWEPT_S = 0.2  # for a sweep
SHARES = {
    "one": 6,
    "bulk": 2,
    "deletes": 1,
    "truncates": 0.3,
    "changes_key": 1,
    "changes_brand": 2,
}
UNSEEN = ("deletes", "truncates", "changes_key")  # by those who poll


async def work(world):
    """One transaction after the other, until the end of the busy time."""
    random, plan = world.random, world.plan
    polled = plan.fed.overlap is not None
    # a change during the last loads would have them made again
    until = plan.busy - 2 * STALL_S if plan.fed.last else plan.busy
    shares = {what: share for what, share in SHARES.items() if not (polled and what in UNSEEN)}
    while True:
        await asyncio.sleep(random.expovariate(1.0 / plan.fed.pause))
        if world.seen.clock() >= until or not world.busy:
            break
        [what], began = random.choices(tuple(shares), tuple(shares.values())), world.seen.clock()
        if world.faults("bypass_slow"):
            await asyncio.sleep(world.slow(LATE_S))
        if world.faults("bypass_rolled_back"):
            continue  # nobody ever sees anything of it
        if what != "one":
            world.faults.fired[f"bypass_{what}"] += 1
        _TRANSACTIONS[what](world, began)
    if polled:
        await _end_late(world)


async def truncate_during_loads(world):
    """At the end a table is truncated while loads have read its rows and not written them, and nobody reads what they write."""
    await asyncio.sleep(max(0.0, world.plan.busy - STALL_S))
    world.database.stalled = True
    for key in world.random.sample(world.keys, 2):
        world.cache.server.delete(key)
    await asyncio.sleep(STALL_S)
    world.faults.fired["bypass_truncates"] += 1
    _truncates(world, 0.0)
    await asyncio.sleep(SWEPT_S)
    world.database.stalled = False


async def _end_late(world):
    """The last transaction began before the last but one."""
    began = world.seen.clock()
    await asyncio.sleep(LATE_S[0])
    _one(world, world.seen.clock())
    await asyncio.sleep(LATE_S[1])
    _one(world, began)


def _one(world, began):
    key = world.random.choice(world.keys)
    world.database.write(key)
    world.fed.tell_rows([key], began)


def _bulk(world, began):
    """Many rows of one table, or of both."""
    keys = world.random.sample(world.keys, world.random.randint(2, len(world.keys)))
    for key in keys:
        world.database.write(key)
    world.fed.tell_rows(keys, began)


def _deletes(world, _):
    world.database.commit(world.random.choice(world.keys), absent=True)


def _truncates(world, _):
    prefix = world.random.choice((b"a:", b"b:"))
    for key in world.keys:
        if key.startswith(prefix):
            world.database.write(key, absent=True)
    world.fed.tell_truncated(prefix[:1].decode())


def _changes_key(world, _):
    """What was one key's row is another's. The other's own row goes before it in the same statement."""
    prefix = world.random.choice((b"a:", b"b:"))
    keys = [key for key in world.keys if key.startswith(prefix)]
    key, other = world.random.choice(keys), world.random.choice(keys)
    world.database.write(key, absent=True)
    world.database.write(other)
    world.fed.tell_moved(key, other)


def _changes_brand(world, began):
    """A row of another table, which is a part of these values."""
    brand = world.random.randrange(BRANDS)
    keys = [key for key in world.keys if key.startswith(b"b:") and brand_of(key) == brand]
    for key in keys:
        if world.database.row_at(key, world.seen.clock()) is not None:
            world.database.write(key)
    world.fed.tell_brand(brand, keys, began)


_TRANSACTIONS = {
    "one": _one,
    "bulk": _bulk,
    "deletes": _deletes,
    "truncates": _truncates,
    "changes_key": _changes_key,
    "changes_brand": _changes_brand,
}
