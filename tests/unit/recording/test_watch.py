"""The change rates and costs of recorded keys, estimated from a few loads."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

import pytest
from stories.shell import in_virtual_time

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.namespace import Namespace
from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.ports import at_once
from cacheupdater.recording.recorder import Recorder
from cacheupdater.recording.watch import Watch
from cacheupdater.testing.dict_loader import DictLoader
from cacheupdater_client.protocol import wire
from cacheupdater_client.protocol.encoding import encoder
from cacheupdater_client.protocol.patterns import Pattern

KEYS = 50


class Slow(DictLoader):
    """Takes two milliseconds a row."""

    async def load(self, keys, leaves=at_once):
        await asyncio.sleep(0.002 * len(keys))
        return await super().load(keys, leaves)


class Story:
    """One namespace of fifty read keys and a source."""

    def __init__(self, *, budget=100.0, timed=False, stamps=None, dated=False, reads=3):
        self.loader = Slow({(n,): {"id": n, "price": 1} for n in range(KEYS)}, stamps)
        source = Source("main", Bucket(budget, budget, now=0.0), concurrency=1, timed=timed)
        self.space = Namespace("product", Pattern.compile("product:{id:int}"), source)
        self.recorder = Recorder(Keyspace([(self.space.pattern, self.space)]))
        keys = [b"product:%d" % n for n in range(KEYS)]
        if reads:
            self.recorder.offer(0, wire.encode_pack(wire.TOUCH, 0, keys, [reads] * KEYS))
        recipe = Recipe(self.loader, None, encoder("json"), ttl=60.0)
        dates = {self.space} if dated else set()
        self.watch = Watch(source, {self.space: recipe}, dates, self.recorder, Random(1))

    async def run(self, *, change=(), version=0.0):
        """A minute, in the middle of which these rows change."""
        running = asyncio.get_running_loop().create_task(self.watch.run(60.0))
        await asyncio.sleep(30.0)
        for n in change:
            self.loader.rows[n,] = {"id": n, "price": 2}
            if version:
                self.loader.stamps[n,] += version
        await running
        return self.watch.sample(self.space)

    @property
    def rows(self):
        return sum(map(len, self.loader.asked))


@in_virtual_time
async def test_keys_are_loaded_twice_and_the_changed_ones_are_seen():
    story = Story()
    sample = await story.run(change=range(10))
    assert len(sample) == KEYS
    assert sum(each.changes for each in sample) == 10
    assert {each.reads for each in sample} == {3}
    assert all(each.exposure == pytest.approx(40.0, abs=0.1) and not each.exact for each in sample)


@in_virtual_time
async def test_the_sample_costs_two_hundredths_of_the_budget_at_most():
    story = Story(budget=20.0)
    sample = await story.run()
    assert len(sample) == 12
    assert story.rows == 24 == int(0.02 * 20 * 60)


@in_virtual_time
async def test_where_time_is_the_budget_its_price_is_learned_and_bounds_the_sample():
    story = Story(budget=100.0, timed=True)  # 120 ms of the minute's 6000: sixty rows
    sample = await story.run()
    assert 20 <= len(sample) <= 30
    assert story.rows <= 60
    assert story.watch.milliseconds(story.space) == pytest.approx(2.0, rel=0.01)


@in_virtual_time
async def test_a_row_that_dates_its_change_is_loaded_once():
    story = Story(stamps={(n,): float(n) for n in range(KEYS)}, dated=True)
    sample = await story.run()
    assert story.rows == KEYS
    assert sorted(each.exposure for each in sample) == [float(n) for n in range(KEYS)]
    assert all(each.exact and each.changes == 1.0 for each in sample)


@in_virtual_time
async def test_versions_count_the_changes_between_two_loads():
    story = Story(stamps=dict.fromkeys(((n,) for n in range(KEYS)), 5.0))
    sample = await story.run(change=[1, 2], version=3.0)
    assert sorted(each.changes for each in sample)[-3:] == [0.0, 3.0, 3.0]
    assert all(each.exact for each in sample)


@in_virtual_time
async def test_a_row_that_comes_or_goes_has_changed():
    story = Story()
    del story.loader.rows[3,]
    running = asyncio.get_running_loop().create_task(story.watch.run(60.0))
    await asyncio.sleep(30.0)
    story.loader.rows[3,] = {"id": 3}
    del story.loader.rows[4,]
    await running
    assert sum(each.changes for each in story.watch.sample(story.space)) == 2


@in_virtual_time
@pytest.mark.parametrize("error", [Unavailable("gone"), Faulty("no such table")])
async def test_loads_that_fail_are_counted_with_their_reason(error):
    story = Story()
    story.loader.error = error
    assert await story.run() == []
    assert (story.watch.failed, story.watch.why) == (KEYS, str(error))


@in_virtual_time
async def test_nothing_read_is_nothing_loaded():
    story = Story(reads=0)
    assert await story.run() == []
    assert story.rows == 0
    assert story.watch.milliseconds(story.space) is None


@in_virtual_time
async def test_loads_are_spread_over_their_time():
    story = Story()
    began = asyncio.get_running_loop().time()
    times = []
    load = story.loader.load

    async def timed(keys, leaves=at_once):
        times.append(asyncio.get_running_loop().time() - began)
        return await load(keys, leaves)

    story.loader.load = timed
    await story.run()
    assert len(times) == 10
    assert min(times) >= 10.0
    assert times[4] < 20.0
    assert times[5] >= 50.0
    assert times[-1] < 60.0
    assert all(later - earlier > 1.5 for earlier, later in pairwise(times))
