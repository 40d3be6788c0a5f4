"""An application without a loader: its readers wait for what a real updater loads, and are told if none does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from time import monotonic

import pytest
import redis.asyncio
from live.updater_process import config, eventually
from reading.shop import PATIENCE_S, Caches, Shop
from stories.client import Ear

import cacheupdater_client
from cacheupdater_client.cache.declared import Settings, declare
from cacheupdater_client.cache.errors import NotFilled
from cacheupdater_client.cache.steps import Entry
from cacheupdater_client.protocol.fence import floor_name
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

pytestmark = [pytest.mark.live, pytest.mark.untimed]

LONG, SHORT = (
    "20s",
    "200ms",
)  # what an updater on a busy machine never needs; what tells soon that there is none
ROWS = 50
PATTERN = "item:{id:int}"
TABLE = (
    "CREATE TABLE items (id bigint PRIMARY KEY, name text);"
    f"INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, {ROWS}) n"
)


def row(number, name=None):
    return {"id": number, "name": name or f"item {number}"}


class Stub(Shop):
    """The functions of an application that cannot load."""

    def item(self, id: int) -> dict | None:
        raise AssertionError("nobody calls it")

    def items(self, ids: list[int]) -> dict[int, dict]:
        raise AssertionError("nobody calls it")


@pytest.fixture
def updater(updaters, redis_url, pg_url, database):
    database.execute(TABLE)
    namespace = {"key": PATTERN, "load": {"source": "main", "table": "items"}}
    source = {"url": pg_url, "budget": "1000/s"}
    return updaters.start(
        config(redis_url, {"main": source}, {"item": namespace}, every="50s", missing="30s")
    )


@pytest.fixture(params=["sync", "asyncio"])
async def caches(request, redis_url, updater):
    made = Caches(request.param, redis_url, emit=updater.emit)
    yield made
    await made.close()


def item_of(caches, wait=LONG, **options):
    return caches.value(Stub().item, PATTERN, cache=caches.cache(fill="updater", wait=wait, **options))


async def at_last(item, number):
    """A miss just after the end of a load is declined, for its reader may have looked before the end. So the reader asks again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(NotFilled):
                return await item(number)


async def test_a_missing_key_is_filled_by_the_updater_and_then_found(caches):
    item = item_of(caches)
    assert await item(7) == row(7)
    counts = item.value.counts
    assert (counts.misses, counts.waits, counts.hits, counts.loads, counts.not_filled) == (1, 1, 0, 0, 0)
    assert await item(7) == row(7)
    assert (item.value.counts.hits, item.value.counts.misses) == (1, 1)


async def test_a_row_that_does_not_exist_is_none_and_is_remembered_by_the_updaters_mark(
    caches,
):
    item = item_of(caches)
    assert await item(ROWS + 1) is None
    assert await item(ROWS + 1) is None
    assert (item.value.counts.waits, item.value.counts.absent) == (1, 2)


async def test_a_reader_that_waits_is_believed_where_redis_has_lost_the_mark_that_the_updater_remembers(
    caches, plain
):
    item = item_of(caches, wait=SHORT)

    assert await at_last(item, ROWS + 1) is None
    plain.delete(floor_name(b"item:%d" % (ROWS + 1)))
    assert await at_last(item, ROWS + 1) is None


async def test_a_value_of_another_type_stays_and_its_reader_is_told_that_nobody_fills_it(caches, plain):
    plain.hset("item:7", "name", "of somebody else")
    item = item_of(caches, wait=SHORT)
    with pytest.raises(NotFilled):
        await item(7)
    with pytest.raises(NotFilled) as told:
        await item.get_many([7])
    assert told.value.keys == [b"item:7"]
    assert plain.hgetall("item:7") == {b"name": b"of somebody else"}


async def test_many_keys_share_one_wait_and_those_that_do_not_exist_are_left_out(caches):
    items = caches.values(Stub().items, PATTERN, cache=caches.cache(fill="updater", wait=LONG))
    await items.get_many([1])
    asked = [1, 2, 3, ROWS + 1]
    assert await items.get_many(asked) == {each: row(each) for each in (1, 2, 3)}
    counts = items.value.counts
    assert (counts.hits, counts.misses, counts.waits, counts.absent) == (1, 4, 4, 1)


async def test_a_hundred_readers_of_a_missing_key_cost_one_load(redis_url, updater):
    """The updater is frozen until all of them have missed: a miss that comes 100 ms after the load costs another."""
    async with contextlib.AsyncExitStack() as ending:
        caches = [Caches(kind, redis_url, emit=updater.emit) for kind in ("sync", "asyncio")]
        for each in caches:
            ending.push_async_callback(each.close)
        readers = [item_of(each) for each in caches]
        assert [await each(1) for each in readers] == [row(1)] * 2  # the clients are connected
        eventually(lambda: updater.metric("rows_total") == 1)
        updater.pause()
        reading = asyncio.gather(*(each(7) for each in readers for _ in range(50)))
        # the first reader of key 1 has waited, too
        await asyncio.to_thread(
            eventually, lambda: sum(each.value.counts.waits for each in readers) == 1 + 100
        )
        updater.resume()
        assert await reading == [row(7)] * 100
        eventually(lambda: updater.metric("rows_total") >= 2)
        assert updater.metric("rows_total") == 2


async def test_without_an_updater_a_reader_is_told_when_its_wait_is_over(caches, updater):
    updater.kill()
    item = item_of(caches, wait=SHORT)
    began = monotonic()
    with pytest.raises(NotFilled, match=r"no updater has filled the key within 0\.2 s") as error:
        await item(7)
    assert monotonic() - began >= 0.2
    assert error.value.keys == [b"item:7"]
    items = caches.values(Stub().items, "many:{id:int}", cache=caches.cache(fill="updater", wait=SHORT))
    with pytest.raises(NotFilled, match="no updater has filled 2 keys") as error:
        await items.get_many([1, 2])
    assert error.value.keys == [b"many:1", b"many:2"]
    assert (item.value.counts.not_filled, items.value.counts.not_filled) == (1, 2)
    updater.start()
    assert await item_of(caches)(7) == row(7)


async def test_a_value_that_is_too_old_is_loaded_by_the_updater(caches, database):
    item = item_of(caches)
    assert await item(7) == row(7)
    await asyncio.to_thread(
        database.execute, "UPDATE items SET name = 'new' WHERE id = 7"
    )  # and nobody says so
    found = row(7)
    async with asyncio.timeout(PATIENCE_S):
        while found == row(7):
            with contextlib.suppress(NotFilled):  # where the machine needs a second from a load to its reader
                found = await item(7, fresh_within="1s")
            await asyncio.sleep(0.05)
    assert found == row(7, "new")
    assert item.value.counts.refilled == 1 + item.value.counts.not_filled
    with pytest.raises(ValueError, match="fresh_within must be at least 1000 ms where an updater fills"):
        await item(7, fresh_within="500ms")


@pytest.mark.parametrize("serve_old", [False, True])
async def test_after_a_change_readers_get_the_new_row(caches, database, serve_old):
    item = item_of(caches)
    assert await item(7) == row(7)
    await asyncio.to_thread(database.execute, "UPDATE items SET name = 'new' WHERE id = 7")
    await item.invalidate(7, serve_old=serve_old)
    async with asyncio.timeout(PATIENCE_S):
        while (found := await item(7)) == row(7):
            assert serve_old
            await asyncio.sleep(0.01)
    assert found == row(7, "new")
    assert item.value.counts.loads == 0


async def test_a_value_that_nobody_can_read_is_loaded_and_one_that_stays_is_an_error(caches, plain):
    assert await item_of(caches)(1) == row(1)  # the namespace is the updater's
    plain.set("item:7", b'{"id":7,"nam')  # not as JSON reads, and nobody's
    item = item_of(caches, wait=SHORT)
    with pytest.raises(NotFilled):
        await item(7)
    plain.delete("item:7")
    assert await at_last(item, 7) == row(7)


async def test_many_waiting_tasks_ask_together_and_all_end(redis_url):
    """Nobody fills: each is told once its wait is over, and they share the questions."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(redis_url, max_connections=50, timeout=PATIENCE_S)
    client = cacheupdater_client.asyncio.Redis(connection_pool=pool, emit="none")
    cache = cacheupdater_client.asyncio.Cache(client, fill="updater", wait="1s")

    @cache.value(PATTERN, ttl="60s")
    async def item(id: int) -> dict: ...

    asked = []
    reader = item._reader
    plain, keys = reader.store.floors, range(1_000)

    async def floors(wanted):
        asked.append(len(wanted))
        return await plain(wanted)

    reader.store.floors = floors
    got = await asyncio.gather(*(item(each % 100) for each in keys), return_exceptions=True)
    assert {type(each) for each in got} == {NotFilled}
    assert 1 < max(asked) <= 100  # of 100 keys, however many wait
    assert not reader.floors._waiters._waiting
    await client.aclose()
    await pool.aclose()


# --- what an updater hears ----------------------------------------------------------------------------


@pytest.fixture
def ear():
    ear = Ear("test_filled_by_updater")
    ear.heard()
    return ear


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_a_waiting_reader_leaves_one_urgent_miss_also_within_no_emit(kind, redis_url, ear):
    caches = Caches(kind, redis_url, emit=ear.url)
    item = item_of(caches, wait=SHORT)
    with cacheupdater_client.no_emit(), pytest.raises(NotFilled):
        await item(7)
    assert ear.heard() == {(MISS, b"item:7"): 1}
    await item.invalidate(7, serve_old=True)
    assert ear.heard() == {(CHANGE, b"item:7"): 1}
    await caches.close()


CLUSTERS = [cacheupdater_client.RedisCluster, cacheupdater_client.asyncio.RedisCluster]


@pytest.mark.parametrize("kind", CLUSTERS, ids=["sync", "asyncio"])
async def test_on_a_cluster_readers_wait_for_keys_of_all_nodes(kind, redis_cluster, ear):
    is_sync = kind is CLUSTERS[0]
    client = kind(host="127.0.0.1", port=redis_cluster.nodes[0].port, emit=ear.url)
    module = cacheupdater_client if is_sync else cacheupdater_client.asyncio
    cache = module.Cache(client, fill="updater", wait=LONG)

    def items(ids: list[int]) -> dict[int, str]: ...

    async def awaited(ids: list[int]) -> dict[int, str]: ...

    values = cache.values(PATTERN, ttl="60s")(items if is_sync else awaited)
    declared = declare(items, PATTERN, Settings(ttl="60s"), batch=True, waits=False)
    other = cacheupdater_client.RedisCluster(host="127.0.0.1", port=redis_cluster.nodes[0].port, emit="none")
    store = cacheupdater_client.Cache(other)._reader.store

    def fill():
        """What an updater does when it hears of the misses."""
        eventually(lambda: values.counts.waits)
        keys = [b"item:%d" % each for each in range(20)]
        for seen, key in zip(store.look("updater", keys, declared.terms), keys, strict=True):
            store.fill("updater", [Entry(seen.token, key, None if key == b"item:0" else b'"a"')], declared)

    filling = threading.Thread(target=fill)
    filling.start()
    got = await (asyncio.to_thread(values.get_many, range(20)) if is_sync else values.get_many(range(20)))
    filling.join()
    assert got == dict.fromkeys(range(1, 20), "a")
    heard = ear.heard()
    assert {key for kind, key in heard if kind == MISS} == {b"item:%d" % each for each in range(20)}
    assert heard[TOUCH, b"item:1"] == 1
    other.close()
    client.close() if is_sync else await client.aclose()


# --- without Redis ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_a_fake_has_what_the_test_has_put_there(kind, redis_url):
    caches = Caches(kind, redis_url)
    cache = caches.cache(fill="updater", wait="10ms")
    item = caches.value(Stub().item, PATTERN, cache=cache)
    with cache.faked() as fake:
        fake.set(b"item:7", b'{"id":7}')
        fake.set(b"item:8", None)
        assert await item(7) == {"id": 7}
        assert await item(8) is None
        with pytest.raises(NotFilled):
            await item(9)
    await caches.close()
