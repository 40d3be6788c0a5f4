"""A database with slow connections never sees more than the budget, in any window."""

from __future__ import annotations

import asyncio

import pytest
from stories.engine import namespace
from stories.shell import Rows, Shell, in_virtual_time
from suite.spending import worst

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.ports import at_once
from cacheupdater.price.shell.partition_shares import PartitionShares

RATE = BURST = 50.0
CONNECTIONS = 5


class Database(Rows):
    """Each of the pool's connections is made when it is first needed, and again after a while, as a pool recycles them."""

    def __init__(self, connecting, *, told_late=True):
        super().__init__()
        self.connecting, self.told_late = connecting, told_late
        self.seen = []
        self.pool = [None] * CONNECTIONS

    async def load(self, keys, leaves=at_once):
        clock = asyncio.get_running_loop().time
        if not self.told_late:
            leaves()
        made = self.pool.pop()
        if made is None or clock() > made + 3.0:
            await asyncio.sleep(self.connecting)
            made = clock()
        if self.told_late:
            leaves()
        self.seen.append((clock(), len(keys)))
        await asyncio.sleep(0.002)
        self.pool.append(made)
        return dict.fromkeys(keys, "value")


async def seen_by(database):
    source = Source("db", Bucket(RATE, BURST, now=0.0), concurrency=CONNECTIONS)
    shell = Shell(namespace(source=source, every=0.0), gap=0.0)
    shell.tables["p"] = database
    async with shell.partition():
        for turn in range(100):
            shell.queue.touch(*(b"p:%d" % (20 * turn + each) for each in range(20)))
            await asyncio.sleep(0.2)
    return database.seen


@pytest.mark.parametrize("connecting", [0.0, 0.05, 0.7, 1.9])
@in_virtual_time
async def test_the_database_never_sees_more_than_the_budget_however_long_a_connection_takes(connecting):
    seen = await seen_by(Database(connecting))
    assert worst(seen, RATE) <= BURST + 1e-6
    assert sum(rows for _, rows in seen) > 0.6 * RATE * 20.0


@in_virtual_time
async def test_a_loader_that_tells_too_early_lets_it_see_more():
    assert worst(await seen_by(Database(1.9, told_late=False)), RATE) > 1.2 * BURST


@in_virtual_time
async def test_an_owner_with_moments_of_its_own_sleeps_until_the_next_and_loads_a_row_in_each():
    source = Source("db", Bucket(10.0, 10.0, now=0.0), concurrency=CONNECTIONS)
    shell = Shell(namespace(source=source, every=0.0), gap=0.0)
    database = shell.tables["p"] = Database(0.05)
    portions = PartitionShares(shell.namespaces)
    portions.divide(1_000_000.0)
    portions.own([7], 0.0, of=48, sources=True)
    async with shell.partition():
        for turn in range(20):
            shell.queue.touch(*(b"p:%d" % (5 * turn + each) for each in range(5)))
            await asyncio.sleep(4.8)
    assert [rows for _, rows in database.seen] == [1] * len(database.seen)
    assert 18 <= len(database.seen) <= 20
    assert {round((at + 1_000_000.0) % 4.8, 2) for at, _ in database.seen} <= {0.70, 0.71, 0.72, 0.75, 0.76}
