"""Values that may be old, on a real Redis: who gets the old value, who loads the new one, and when an old value ends."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest
import redis
from reading.shop import PATIENCE_S, Caches, Shop
from stories.client import Ear

from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.wire import CHANGE, TOUCH

BOOK, BALL = {"name": "book", "price": 5}, {"name": "ball", "price": 7}
KEY = b"product:7"
SECOND = 1_000_000 * 1000  # of a token


@pytest.fixture
def ear():
    ear = Ear("test_cache_old_values")
    ear.heard()
    return ear


@pytest.fixture
def shop():
    shop = Shop({7: BOOK, 8: BALL})
    yield shop
    shop.gate.set()


@pytest.fixture
def plain(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(params=["sync", "asyncio"])
async def caches(request, redis_url, ear):
    made = Caches(request.param, redis_url, emit=ear.url)
    yield made
    await made.close()


def make_older(plain, seconds, key=KEY):
    """As if the value had been loaded so long ago."""
    floor = fence.floor_name(key)
    plain.set(floor, int(plain.get(floor)) - seconds * SECOND, keepttl=True)


async def until(product, value):
    """Reads until the value is there."""
    async with asyncio.timeout(PATIENCE_S):
        while await product(7) != value:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)


async def until_failed(product, times=1):
    async with asyncio.timeout(PATIENCE_S):
        while product.value.counts.failed < times:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)


# --- invalidate(serve_old=True) -----------------------------------------------------------------------


async def test_readers_get_the_old_value_while_a_changed_row_is_loaded(caches, shop, ear):
    here, there = caches.value(shop.product), caches.value(shop.product)
    await here(7)
    await shop.has_begun()
    shop.gate.clear()
    shop.rows[7] = BALL
    ear.heard()
    await here.invalidate(7, serve_old=True)
    assert (CHANGE, KEY) in ear.heard()  # an updater loads the row too
    await shop.has_begun()
    assert [await here(7), await there(7)] == [BOOK, BOOK]
    shop.gate.set()
    await until(there, BALL)
    assert shop.loads == [[7], [7]]


async def test_a_load_from_before_the_change_does_not_bring_the_old_row_back(caches, shop, plain):
    product = caches.value(shop.product)
    await product(7)
    await shop.has_begun()
    shop.gate.clear()
    early = asyncio.ensure_future(product(7, fresh_within="0s"))
    await shop.has_begun()  # it has read the row
    shop.rows[7] = BALL
    await product.invalidate(7, serve_old=True)
    await shop.has_begun()
    shop.gate.set()
    assert await early == BOOK
    await until(product, BALL)
    assert plain.get(KEY) == b'{"name":"ball","price":7}'


async def test_an_old_value_ends_by_itself_if_nobody_can_load_the_new_one(caches, shop, plain):
    product = caches.value(shop.product, timeout="10s")
    await product(7)
    shop.error = OSError("no database")
    await product.invalidate(7, serve_old=True)
    assert 0 < plain.pttl(KEY) <= 20_000  # two timeouts
    await until_failed(product)
    assert plain.pttl(KEY) <= 20_000, "a load that fails prolongs nothing"
    plain.pexpire(KEY, 1)  # as if they were over
    async with asyncio.timeout(PATIENCE_S):
        while plain.exists(KEY):  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)
    with pytest.raises(OSError, match="no database"):
        await product(7)


async def test_a_key_without_a_value_is_only_invalidated(caches, shop):
    product = caches.value(shop.product)
    await product.invalidate(7, serve_old=True)
    assert shop.loads == []
    assert await product(7) == BOOK


async def test_a_reader_who_asks_for_an_age_does_not_get_what_has_changed(caches, shop):
    product = caches.value(shop.product)
    await product(7)
    await shop.has_begun()
    shop.gate.clear()
    shop.rows[7] = BALL
    await product.invalidate(7, serve_old=True)
    await shop.has_begun()
    reading = asyncio.ensure_future(product(7, fresh_within="10m"))
    shop.gate.set()
    assert await reading == BALL


# --- refresh_after ------------------------------------------------------------------------------------


async def test_a_hit_costs_one_get_without_these_settings_and_one_script_with_them(caches, shop, plain):
    usual = caches.value(shop.product)
    await usual(7)
    young = caches.value(shop.product, refresh_after="10s")
    assert await young(7) == BOOK
    for product, command, other in ((usual, "get", "evalsha"), (young, "evalsha", "mget")):
        plain.config_resetstat()
        assert await product(7) == BOOK
        stats = plain.info("commandstats")
        assert stats[f"cmdstat_{command}"]["calls"] == 1
        assert f"cmdstat_{other}" not in stats
    assert shop.loads == [[7]]


async def test_readers_of_an_old_value_get_it_at_once_and_one_of_all_processes_loads_it(
    caches, shop, plain, ear
):
    here, there = (caches.value(shop.product, refresh_after="10s") for _ in range(2))
    await here(7)
    await shop.has_begun()
    make_older(plain, 11)
    shop.rows[7] = BALL
    shop.gate.clear()
    ear.heard()
    reads = [await each(7) for each in [here, there] * 5]
    assert reads == [BOOK] * 10
    assert ear.heard() == {(TOUCH, KEY): 10}
    await shop.has_begun()
    shop.gate.set()
    await until(here, BALL)
    await until(there, BALL)
    assert shop.loads == [[7], [7]]
    served = [each.value.counts.served_old for each in (here, there)]
    assert min(served) >= 5
    assert here.value.counts.mean_age_s > 1


async def test_many_old_values_are_loaded_together(caches, shop, plain):
    products = caches.values(shop.products, refresh_after="10s")
    assert await products.get_many([7, 8]) == {7: BOOK, 8: BALL}
    await shop.has_begun()
    make_older(plain, 11)
    make_older(plain, 11, b"product:8")
    shop.rows = {7: BALL, 9: BALL}
    found = await products.get_many([7, 8, 9])
    assert found in ({7: BOOK, 8: BALL, 9: BALL}, {7: BALL, 9: BALL}), (
        "the old ones, or what a quick load has brought"
    )
    await until(products, BALL)
    assert [7, 8] in shop.loads
    assert await products.get_many([7, 8, 9]) == {7: BALL, 9: BALL}


async def test_a_missing_value_is_loaded_and_waited_for(caches, shop):
    product = caches.value(shop.product, refresh_after="10s")
    assert [await product(7), await product(9), await product(9)] == [BOOK, None, None]
    assert shop.loads == [[7], [9]]
    counts = product.value.counts
    assert (counts.hits, counts.misses, counts.served_old) == (0, 3, 0)


async def test_a_refresh_that_fails_reaches_no_reader_and_is_tried_again_after_a_pause(caches, shop, plain):
    product = caches.value(shop.product, refresh_after="10s")
    await product(7)
    make_older(plain, 11)
    shop.error = OSError("no database")
    began = monotonic()
    assert await product(7) == BOOK
    await until_failed(product)
    ttl = plain.pttl(KEY)
    assert await product(7) == BOOK
    assert len(shop.loads) == 2 or monotonic() - began > 1.0  # the pause
    assert plain.pttl(KEY) <= ttl  # without fail_safe nothing lives longer
    shop.rows[7], shop.error = BALL, None
    await until(product, BALL)


# --- soft_timeout -------------------------------------------------------------------------------------


async def test_a_new_value_that_comes_within_the_soft_timeout_is_what_the_reader_gets(caches, shop, plain):
    here, there = (caches.value(shop.product, refresh_after="10s", soft_timeout="10s") for _ in range(2))
    await here(7)
    await shop.has_begun()
    make_older(plain, 11)
    shop.rows[7] = BALL
    shop.gate.clear()
    reads = [asyncio.ensure_future(here(7))]
    await shop.has_begun()
    reads += [asyncio.ensure_future(here(7)), asyncio.ensure_future(there(7))]
    shop.gate.set()
    assert await asyncio.gather(*reads) == [BALL] * 3
    assert shop.loads == [[7], [7]]
    assert here.value.counts.served_old == there.value.counts.served_old == 0


async def test_a_reader_waits_no_longer_than_the_soft_timeout_and_the_load_goes_on(caches, shop, plain):
    here, there = (caches.value(shop.product, refresh_after="10s", soft_timeout="20ms") for _ in range(2))
    await here(7)
    await shop.has_begun()
    make_older(plain, 11)
    shop.rows[7] = BALL
    shop.gate.clear()
    assert [await here(7), await there(7), await here(7)] == [BOOK] * 3
    await shop.has_begun()
    assert here.value.counts.served_old == 2
    shop.gate.set()
    await until(there, BALL)
    assert shop.loads == [[7], [7]]


# --- fail_safe ----------------------------------------------------------------------------------------


async def test_the_old_value_outlives_its_ttl_while_the_source_fails(caches, shop, plain):
    product = caches.value(shop.product, fail_safe="1h")
    await product(7)
    make_older(plain, 50)
    plain.pexpire(KEY, 10_000)
    shop.error = OSError("no database")
    assert await product(7) == BOOK
    await until_failed(product)
    async with asyncio.timeout(PATIENCE_S):
        while plain.pttl(KEY) <= 10_000:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)
    assert plain.pttl(KEY) <= 60_000  # one more ttl
    shop.rows[7], shop.error = BALL, None
    await until(product, BALL)
    assert product.value.counts.served_old >= 1


async def test_an_old_value_ends_when_fail_safe_is_used_up(caches, shop, plain):
    product = caches.value(shop.product, fail_safe="10s")
    await product(7)
    make_older(plain, 75)  # of 60 + 10
    plain.pexpire(KEY, 5_000)
    shop.error = OSError("no database")
    assert await product(7) == BOOK
    await until_failed(product)
    assert plain.pttl(KEY) <= 5_000


async def test_an_invalidated_value_is_not_served_again_however_the_source_fails(caches, shop):
    product = caches.value(shop.product, fail_safe="1h")
    await product(7)
    shop.error = OSError("no database")
    await product.invalidate(7)
    with pytest.raises(OSError, match="no database"):
        await product(7)


async def test_a_reader_who_asks_for_an_age_hears_that_the_source_fails(caches, shop, plain):
    product = caches.value(shop.product, fail_safe="1h")
    await product(7)
    make_older(plain, 5)
    shop.error = OSError("no database")
    with pytest.raises(OSError, match="no database"):
        await product(7, fresh_within="1s")


async def test_the_old_value_lives_on_while_a_loader_hangs(caches, shop, plain):
    await caches.value(shop.product)(7)  # this load has time
    product = caches.value(shop.product, fail_safe="1h", timeout="100ms")
    await shop.has_begun()
    make_older(plain, 50)
    plain.pexpire(KEY, 10_000)
    shop.gate.clear()
    async with asyncio.timeout(PATIENCE_S):
        while plain.pttl(KEY) <= 10_000:
            assert await product(7) == BOOK
            await asyncio.sleep(0.01)


async def test_no_reader_waits_for_a_hung_refresh(caches, shop, plain):
    product = caches.value(shop.product, refresh_after="10s", timeout="30s")
    await product(7)
    await shop.has_begun()
    make_older(plain, 11)
    shop.gate.clear()
    began = monotonic()
    assert [await product(7) for _ in range(20)] == [BOOK] * 20
    assert monotonic() - began < 10.0  # of a load that never ends


# --- values of somebody else, and no Redis ------------------------------------------------------------


async def test_a_pickle_stays_and_its_readers_get_the_row(caches, shop, plain):
    plain.set(KEY, b"\x80\x04N.")
    product = caches.value(shop.product, refresh_after="10s")
    assert [await product(7) for _ in range(3)] == [BOOK] * 3
    assert plain.get(KEY) == b"\x80\x04N."


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_a_redis_that_is_down_raises_what_get_raises(kind, shop):
    caches = Caches(kind, "redis://127.0.0.1:1", socket_connect_timeout=0.2, retry=None)
    product = caches.value(shop.product, refresh_after="10s", fail_safe="1h")
    with pytest.raises(redis.ConnectionError):
        await product(7)
    with pytest.raises(redis.ConnectionError):
        await product.get_many([7])
    with pytest.raises(redis.ConnectionError):
        await product.invalidate(7, serve_old=True)
    assert shop.loads == []
    await caches.close()


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_a_faked_cache_has_old_values_too(kind, shop):
    caches = Caches(kind, "redis://127.0.0.1:1", socket_connect_timeout=0.2, retry=None)
    cache = caches.cache()
    product = caches.value(shop.product, cache=cache, refresh_after="10s", fail_safe="1h")
    now = 1_000.0
    with cache.faked(lambda: now):
        await product(7)
        now += 11.0
        shop.rows[7] = BALL
        shop.gate.clear()
        assert await product(7) == BOOK
        shop.gate.set()
        await until(product, BALL)
        now += 50.0
        shop.error = OSError("no database")
        assert await product(7) == BALL
        await until_failed(product)
        now += 50.0
        assert await product(7) == BALL  # its ttl is over
        shop.error, shop.rows[7] = None, BOOK
        await product.invalidate(7, serve_old=True)
        await until(product, BOOK)
    await caches.close()


async def test_an_asyncio_refresh_that_hangs_is_cancelled(redis_url, plain):
    caches = Caches("asyncio", redis_url)
    cache, hang, ended = caches.cache(), False, []

    @cache.value("product:{id:int}", ttl="60s", timeout="100ms", refresh_after="10s")
    async def product(id: int) -> str:
        if hang:
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                ended.append(id)
                raise
        return "value"

    await product(7)
    make_older(plain, 11)
    hang = True
    assert await product(7) == "value"
    async with asyncio.timeout(PATIENCE_S):
        while not ended:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)
    await caches.close()


# --- the end ------------------------------------------------------------------------------------------


async def test_a_closed_cache_waits_for_its_refresh_and_begins_none(caches, shop, plain):
    cache = caches.cache()
    product = caches.value(shop.product, cache=cache, refresh_after="10s")
    await product(7)
    await shop.has_begun()
    make_older(plain, 11)
    shop.rows[7] = BALL
    shop.gate.clear()
    assert await product(7) == BOOK
    await shop.has_begun()
    ending = asyncio.ensure_future(caches.end(cache, timeout=PATIENCE_S))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(ending), 0.05)
    shop.gate.set()
    await ending
    assert plain.get(KEY) == b'{"name":"ball","price":7}'
    make_older(plain, 11)
    shop.rows[7] = BOOK
    assert [await product(7) for _ in range(3)] == [BALL] * 3
    await product.invalidate(7, serve_old=True)
    assert await product(7) == BALL
    plain.delete(KEY)
    assert await product(7) == BOOK  # a reader loads what is missing
    await caches.end(cache)
    assert shop.loads == [[7]] * 3


async def test_a_cache_is_closed_in_time_though_a_refresh_hangs(caches, shop, plain):
    cache = caches.cache()
    product = caches.value(shop.product, cache=cache, refresh_after="10s", timeout="30s")
    await product(7)
    await shop.has_begun()
    make_older(plain, 11)
    shop.gate.clear()
    assert await product(7) == BOOK
    await shop.has_begun()
    async with asyncio.timeout(PATIENCE_S / 2):  # the loader hangs longer than that
        await caches.end(cache, timeout=0.01)
    assert caches.kind == "sync" or not any(
        task.get_name() == "cacheupdater-refresh" for task in asyncio.all_tasks()
    )
    assert await product(7) == BOOK
