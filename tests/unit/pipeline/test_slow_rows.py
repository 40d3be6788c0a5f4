"""One row takes longer than a statement may: its neighbours are still loaded, whatever kind of hint they have."""

from __future__ import annotations

import asyncio

import pytest
from stories.engine import namespace, plenty
from stories.shell import Rows, Shell, in_virtual_time, now

from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.errors import TimedOut

HEALTHY = [b"p:%d" % number for number in range(96)]
SLOW = b"p:96"
DEADLINE_S = 1.0
WITHIN_S = 10.0


class SlowRows(Rows):
    """Statements that contain the slow row run into their deadline; all do where the database hangs."""

    hangs = False

    async def load(self, keys, leaves):
        values = await super().load(keys, leaves)
        if (96,) in keys or self.hangs:
            await asyncio.sleep(DEADLINE_S)
            raise TimedOut("the database has ended the statement")
        return values


@pytest.mark.parametrize("kind", Kind)
@in_virtual_time
async def test_all_healthy_keys_are_loaded_beside_a_slow_row(kind):
    shell = Shell(namespace(every=2.0))
    shell.tables["p"] = SlowRows({(number,): number for number in range(97)})
    async with shell.partition() as partition:
        while now() < WITHIN_S:
            shell.queue.send(kind, *HEALTHY, SLOW)
            await asyncio.sleep(1.0)
        assert sum(shell.redis.get(key) is not None for key in HEALTHY) == len(HEALTHY)
        for _ in range(60):
            shell.queue.send(kind, *HEALTHY, SLOW)
            await asyncio.sleep(1.0)
        assert list(partition.engine.quarantine.keys) == [SLOW]


@in_virtual_time
async def test_pack_mates_are_refreshed_as_usual_while_the_slow_row_is_tried_again():
    """After a minute in quarantine it runs apart."""
    shell = Shell(namespace(every=1.0))
    shell.tables["p"] = SlowRows({(number,): number for number in range(97)})
    async with shell.partition():
        for _ in range(30):
            shell.queue.touch(*HEALTHY, SLOW)
            await asyncio.sleep(1.0)
        for turn in range(100):
            shell.tables["p"].rows = {(number,): 1000 + turn for number in range(97)}
            shell.queue.touch(*HEALTHY, SLOW)
            await asyncio.sleep(1.1)
            assert {shell.redis.get(key) for key in HEALTHY} == {b"%d" % (1000 + turn)}


@in_virtual_time
async def test_a_source_that_hangs_is_not_asked_in_smaller_and_smaller_pieces():
    source = Source("db", plenty(), concurrency=5)
    shell = Shell(namespace(every=1.0, source=source), namespace("q", source=source))
    shell.tables = {name: SlowRows() for name in shell.tables}
    for table in shell.tables.values():
        table.hangs = True
    async with shell.partition() as partition:
        for _ in range(20):
            shell.queue.touch(*HEALTHY, b"q:1")
            await asyncio.sleep(1.0)
        assert {len(keys) for keys in shell.tables["p"].asked} == {len(HEALTHY)}
        assert not partition.engine.quarantine.keys
