"""A purge of a queue on fakes: what is removed before what is dropped, and what stays when Redis refuses."""

from __future__ import annotations

from collections import Counter

import pytest

from cacheupdater.config import load_config
from cacheupdater.core.answers import Answer, Result
from cacheupdater.core.lanes import partition_of_lane
from cacheupdater.depot_ports import Progress
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Entry
from cacheupdater.service import purge
from cacheupdater.service.purge import Purge
from cacheupdater.testing.memory_depot import MemoryDepot, MemoryTables
from cacheupdater.testing.memory_redis import MemoryRedis, MemoryWriter
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH, encode_pack

_CONFIG = """\
version: 1
queue: {url: "sqlite:////nowhere/hints.db"}
cache: {url: "redis://127.0.0.1:1/0"}
sources: {main: {budget: 500/s}}
namespaces:
  item: {key: "item:{id:int}", load: {source: main, python: "no_such_module:rows"}}
  cart: {key: "cart:{id:int}", load: {source: main, python: "no_such_module:rows"}, value: {encoding: hash}}
  mine: {key: "mine:{id:int}", load: {source: main, python: "no_such_module:rows"}, value: {encoding: hash, foreign: replace}}
"""


class Refusing:
    """A writer whose Redis refuses to remove one key, or does not answer."""

    def __init__(self, writer):
        self._writer = writer
        self.refused = self.away = None

    async def invalidate(self, keys, forms):
        if self.away in keys:
            raise Unavailable("Redis did not answer in time")
        fine = [key for key in keys if key != self.refused]
        said = dict(zip(fine, await self._writer.invalidate(fine, forms), strict=True))
        return [said.get(key, Answer(Result.FAILED, why="NOPERM no rights")) for key in keys]


class World:
    """A queue of three partitions, a cache, and what was told."""

    def __init__(self, namespaces):
        self.depot = MemoryDepot(MemoryTables(3, lambda: 1000.0))
        self.redis = MemoryRedis(lambda: 1000.0)
        self.writer = Refusing(MemoryWriter(self.redis))
        self.told = []
        self.purge = Purge(
            self.depot, self.writer, namespaces, tell=lambda read, of: self.told.append((read, of))
        )

    async def put(self, partition, kind, *keys):
        await self.depot.put([(partition, encode_pack(kind, 1, list(keys)))])

    async def packs(self):
        """Of each partition."""
        left = Counter()
        for each in await self.depot.lag():
            left[partition_of_lane(each.lane)] += each.packs
        return [left[partition] for partition in range(3)]


@pytest.fixture
def world(tmp_path):
    file = tmp_path / "shop.yaml"
    file.write_text(_CONFIG)
    return World(list(load_config(str(file), {}).namespaces.values()))


async def test_a_purge_removes_the_values_of_changed_keys_and_drops_all_packs(world):
    for number in range(4):
        world.redis.set(b"item:%d" % number, b'"old"')
    await world.put(0, CHANGE, b"item:0")
    await world.put(0, SET, b"item:1")
    await world.put(0, TOUCH, b"item:2")
    await world.put(2, MISS, b"item:3")
    await world.depot.put([(2, b"no pack")])
    done = await world.purge.run()
    assert (done.partitions, done.removals, done.kept) == (2, 2, {})
    assert done.packs == {"changes": 2, "touches": 1, "misses": 1, "unreadable": 1}
    assert [world.redis.get(b"item:%d" % number) for number in range(4)] == [None, None, b'"old"', b'"old"']
    assert await world.packs() == [0, 0, 0]
    assert world.told[-1] == (5, 5)


async def test_a_load_that_began_before_the_purge_cannot_bring_the_old_value_back(world):
    await world.put(0, CHANGE, b"item:0")
    writer = MemoryWriter(world.redis)
    token = await writer.token()
    await world.purge.run()
    [answer] = await writer.write(token, [Entry(b"item:0", b'"old"', 1000)])
    assert answer.result is Result.REFUSED
    assert world.redis.get(b"item:0") is None


async def test_a_partition_whose_values_stay_keeps_all_its_packs_and_the_others_go(world):
    world.writer.refused = b"item:0"
    await world.put(0, CHANGE, b"item:0")
    await world.put(0, TOUCH, b"item:5")
    await world.put(1, CHANGE, b"item:1")
    done = await world.purge.run()
    assert await world.packs() == [2, 0, 0]
    assert done.packs == {"changes": 1}
    assert done.kept == {0: "Redis does not remove item:0: NOPERM no rights"}


async def test_a_redis_that_is_away_keeps_everything_that_is_left(world):
    world.writer.away = b"item:1"
    for partition in range(3):
        await world.put(partition, CHANGE, b"item:%d" % partition)
    done = await world.purge.run()
    assert await world.packs() == [0, 1, 1]
    assert list(done.kept) == [1, 2]
    assert "did not answer" in done.kept[1]


async def test_a_queue_that_cannot_say_what_is_left_keeps_it(world, monkeypatch):
    monkeypatch.setattr(purge, "PACKS", 2)
    for partition in (0, 0, 0, 1):
        await world.put(partition, CHANGE, b"item:%d" % partition)
    read = world.depot.read

    async def elected(after, limit):
        if after != {~0: 1}:
            raise Unavailable("partition 0 shows nothing")
        return await read(after, limit)

    world.depot.read = elected
    done = await world.purge.run()
    assert await world.packs() == [3, 1, 0]
    assert done.kept == {0: "partition 0 shows nothing", 1: "not tried after that"}


async def test_packs_that_an_updater_finishes_meanwhile_hold_up_nothing(world, monkeypatch):
    """A part then has a gap, and at last nothing is left before the end."""
    monkeypatch.setattr(purge, "PACKS", 2)
    for number in range(9):
        await world.put(0, CHANGE, b"item:%d" % number)
    await world.depot.renew("ann", 60.0)
    [gained] = await world.depot.claim("ann", [0])
    remove, finished = world.writer.invalidate, iter(([4, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]))

    async def invalidate(keys, forms):
        progress = Progress(gained.epoch, 10, 1, next(finished))
        assert not await world.depot.commit("ann", {~0: progress})
        return await remove(keys, forms)

    world.writer.invalidate = invalidate
    done = await world.purge.run()
    assert (done.partitions, done.packs.total(), done.kept) == (1, 4, {})
    assert await world.packs() == [0, 0, 0]


async def test_packs_that_come_after_the_beginning_stay_and_their_values_too(world):
    world.redis.set(b"item:9", b'"old"')
    await world.put(0, CHANGE, b"item:0")
    seen, remove = world.depot.lag, world.writer.invalidate

    async def lag():
        lags = await seen()
        await world.put(0, CHANGE, b"item:9")
        return lags

    async def invalidate(keys, forms):
        await world.put(0, CHANGE, b"item:9")
        return await remove(keys, forms)

    world.depot.lag, world.writer.invalidate = lag, invalidate
    done = await world.purge.run()
    assert (done.partitions, done.removals, done.packs.total()) == (1, 1, 1)
    world.depot.lag = seen
    assert await world.packs() == [2, 0, 0]
    assert world.redis.get(b"item:9") == b'"old"'


async def test_what_is_not_ours_stays_as_the_updater_would_leave_it(world):
    """A session beside the cache, and a value that is no hash; but `foreign: replace` says that all values may go."""
    for key in (b"session:7", b"item:none", b"cart:1", b"mine:1"):
        world.redis.set(key, b"an application's")
        await world.put(1, CHANGE, key)
    done = await world.purge.run()
    assert (done.removals, done.foreign, done.strangers) == (1, 1, 2)
    found = [world.redis.get(key) is None for key in (b"session:7", b"item:none", b"cart:1", b"mine:1")]
    assert found == [False, False, False, True]
    assert await world.packs() == [0, 0, 0]


async def test_a_long_partition_is_read_in_pieces_and_each_key_removed_once_in_each(world, monkeypatch):
    monkeypatch.setattr(purge, "PACKS", 10)
    asked = []
    before = world.writer.invalidate

    async def invalidate(keys, forms):
        asked.append(list(keys))
        return await before(keys, forms)

    world.writer.invalidate = invalidate
    for number in range(25):
        await world.put(0, CHANGE, b"item:0", b"item:%d" % number)
    done = await world.purge.run()
    assert [len(each) for each in asked] == [10, 11, 6]
    assert all(len(set(each)) == len(each) for each in asked)
    assert done.packs == {"changes": 25}
    assert world.told == [(10, 25), (20, 25), (25, 25)]
