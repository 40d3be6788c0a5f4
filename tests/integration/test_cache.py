"""Values that are read through, on a real Redis: what callers get, what Redis holds afterwards, and what an updater hears."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from time import monotonic

import msgspec
import pydantic
import pytest
import redis
from live.updater_process import eventually
from reading.shop import PATIENCE_S, Caches, Shop
from redis.exceptions import NoPermissionError, ResponseError
from stories.client import Ear

from cacheupdater_client.cache.errors import LoadTimeout
from cacheupdater_client.cache.watch import POLL_S
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.encoding import encoder
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

PICKLE = b"\x80\x04N."
BOOK, BALL = {"name": "book", "price": 5}, {"name": "ball", "price": 7}


@pytest.fixture
def ear():
    ear = Ear("test_cache")
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


async def together(*calls):
    """The results or errors of calls at the same time."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def until_somebody_waits(value):
    """Until a caller has found that somebody else loads."""
    async with asyncio.timeout(PATIENCE_S):
        while not value.counts.waits:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0)


# --- hit, miss, absent --------------------------------------------------------------------------------


async def test_a_miss_loads_once_and_later_reads_find_the_value(caches, shop):
    product = caches.value(shop.product)
    assert await product(7) == BOOK
    assert await product(7) == BOOK
    assert shop.loads == [[7]]


async def test_a_value_that_another_process_has_filled_is_a_hit(caches, shop):
    here, there = caches.value(shop.product), caches.value(shop.product)
    await here(7)
    assert await there(7) == BOOK
    assert shop.loads == [[7]]
    assert there.value.counts.hits == 1


async def test_a_change_ends_a_value(caches, shop):
    product = caches.value(shop.product)
    await product(7)
    shop.rows[7] = BALL
    await product.invalidate(7)
    assert await product(7) == BALL


async def test_a_row_that_does_not_exist_is_remembered_until_a_change(caches, shop, plain):
    product = caches.value(shop.product)
    assert [await product(9), await product(9)] == [None, None]
    assert shop.loads == [[9]]
    assert plain.exists("product:9") == 0  # so that other programs see what they always saw
    shop.rows[9] = BOOK
    await product.invalidate(9)
    assert await product(9) == BOOK


async def test_a_row_that_does_not_exist_is_asked_for_again_after_missing(caches, shop):
    product = caches.value(shop.product, missing="0s")
    await product(9)
    await product(9)
    assert shop.loads == [[9], [9]]


async def test_readers_at_the_same_time_share_one_load(caches, shop):
    shop.gate.clear()
    here, there = caches.value(shop.product), caches.value(shop.product)
    reads = [asyncio.ensure_future(each(7)) for each in [here, there] * 10]
    await shop.has_begun()
    shop.gate.set()
    assert await together(*reads) == [BOOK] * 20
    assert shop.loads == [[7]]
    assert here.value.counts.waits + there.value.counts.waits >= 1


async def test_a_loader_may_be_a_method_of_many_objects(redis_url):
    from cacheupdater_client import Cache, Redis

    with Redis.from_url(redis_url, emit="none") as client:
        cache = Cache(client)

        class Catalogue:
            """Two objects share the keys, and each loads with what it has."""

            def __init__(self, name):
                self.name = name

            @cache.value("title:{id:int}", ttl="60s")
            def title(self, id: int) -> str:
                return f"{self.name} {id}"

        assert Catalogue("spring").title(1) == "spring 1"
        assert Catalogue("autumn").title(1) == "spring 1"
        assert Catalogue("autumn").title(id=2) == "autumn 2"
        Catalogue.title.invalidate(1)
        assert Catalogue("autumn").title(1) == "autumn 1"


# --- many keys ----------------------------------------------------------------------------------------


class Counting:
    """How often Redis has run a command."""

    def __init__(self, plain):
        self._plain = plain
        plain.config_resetstat()

    def __getitem__(self, name):
        return self._plain.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]


async def test_many_keys_cost_one_mget_and_one_load_for_all_that_is_missing(caches, shop, plain):
    products = caches.values(shop.products)
    await products(7)
    commands = Counting(plain)
    assert await products.get_many([7, 8, 9]) == {7: BOOK, 8: BALL}
    assert (commands["mget"], commands["evalsha"] + commands["eval"]) == (1, 3)  # LOOK, COMMIT, RELEASE
    assert shop.loads == [[7], [8, 9]]
    commands = Counting(plain)
    assert await products.get_many([7, 8, 7]) == {7: BOOK, 8: BALL}
    assert (commands["mget"], commands["evalsha"]) == (1, 0)


async def test_a_loader_of_one_key_serves_many_keys_one_by_one(caches, shop):
    product = caches.value(shop.product)
    assert await product.get_many(iter([7, 8, 7, 9])) == {7: BOOK, 8: BALL}
    assert sorted(shop.loads) == [[7], [8], [9]]


async def test_nothing_is_asked_for_no_keys(caches, shop, plain):
    products = caches.values(shop.products)
    commands = Counting(plain)
    assert await products.get_many([]) == {}
    assert commands["mget"] == 0


# --- ages ---------------------------------------------------------------------------------------------


async def test_a_value_older_than_fresh_within_is_loaded_again_and_waited_for(caches, shop):
    product = caches.value(shop.product)
    await product(7)
    shop.rows[7] = BALL
    assert await product(7, fresh_within="10m") == BOOK
    assert await product(7, fresh_within="0s") == BALL
    assert await product(7) == BALL
    counts = product.value.counts
    assert (counts.hits, counts.misses, counts.refilled, counts.loads) == (2, 1, 1, 2)


async def test_a_value_that_the_application_wrote_before_is_replaced_by_a_load_that_counts_as_a_fill(
    caches, shop, plain
):
    product = caches.value(shop.product)
    await product(7)
    plain.delete(fence.floor_name(b"product:7"))
    plain.set(b"product:7", b" " + plain.get(b"product:7"))  # as another library would spell it
    assert await product(7, fresh_within="10m") == BOOK
    counts = product.value.counts
    assert (counts.fills, counts.unfilled, counts.loads) == (2, 0, 2)


async def test_fresh_within_must_be_a_duration(caches, shop):
    with pytest.raises(ValueError, match="fresh_within must be a duration such as"):
        await caches.value(shop.product)(7, fresh_within="soon")


# --- loaders that fail --------------------------------------------------------------------------------


async def test_a_loaders_error_reaches_its_callers_alone_and_the_next_caller_loads_at_once(caches, shop):
    shop.error = OSError("no database")
    shop.gate.clear()
    product = caches.value(shop.product)
    reads = [asyncio.ensure_future(product(7)) for _ in range(3)]
    await shop.has_begun()
    shop.gate.set()
    assert {str(each) for each in await together(*reads)} == {"no database"}
    shop.error = None
    began = monotonic()
    assert (
        await caches.value(shop.product)(7) == BOOK
    )  # no lease of the failed load keeps another process waiting
    assert monotonic() - began < 5.0  # a lease lasts 10 s
    assert product.value.counts.failed >= 1


async def test_others_of_the_process_wait_for_a_hung_loader_no_longer_than_its_timeout_allows(caches, shop):
    shop.gate.clear()
    product = caches.value(shop.product, timeout="200ms")
    reads = [asyncio.ensure_future(product(7))]
    await shop.has_begun()
    began = monotonic()
    with pytest.raises(LoadTimeout):
        await product(7)
    assert monotonic() - began < 5.0
    shop.gate.set()
    await together(*reads)


async def test_an_asyncio_loader_that_hangs_is_cancelled_and_its_caller_told(redis_url):
    caches = Caches("asyncio", redis_url)
    cache, ended = caches.cache(), []

    @cache.value("slow:{id:int}", ttl="60s", timeout="100ms")
    async def slow(id: int) -> str:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.append(id)
        return "late"

    with pytest.raises(LoadTimeout, match=r"slow has not ended within 0\.1 s"):
        await slow(1)
    assert ended == [1]
    await caches.close()


async def test_a_cancelled_caller_ends_its_load_and_another_waiting_caller_begins_anew(redis_url):
    caches = Caches("asyncio", redis_url)
    cache, began, gate = caches.cache(), [], asyncio.Event()

    @cache.value("slow:{id:int}", ttl="60s")
    async def slow(id: int) -> str:
        began.append(id)
        await gate.wait()
        return "value"

    first = asyncio.ensure_future(slow(1))
    while not began:  # noqa: ASYNC110  a loader of an application sets no event
        await asyncio.sleep(0)
    second = asyncio.ensure_future(slow(1))
    await until_somebody_waits(slow)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.set()
    async with asyncio.timeout(5.0):  # and it does not wait for the lease of 10 s
        assert await second == "value"
    assert began == [1, 1]
    await caches.close()


async def test_a_caller_that_is_cancelled_while_it_waits_leaves_the_load_to_the_others(redis_url, shop):
    caches = Caches("asyncio", redis_url)
    shop.gate.clear()
    product = caches.value(shop.product)
    first = asyncio.ensure_future(product(7))
    await shop.has_begun()
    second = asyncio.ensure_future(product(7))
    await until_somebody_waits(product.value)
    second.cancel()
    shop.gate.set()
    assert await first == BOOK
    assert shop.loads == [[7]]
    await caches.close()


# --- values of somebody else --------------------------------------------------------------------------


def only_line(caplog):
    """The only message of the log."""
    [record] = caplog.records
    return record.getMessage()


async def test_a_pickle_stays_and_each_read_loads_and_one_log_line_says_what_to_do(
    caches, shop, plain, ear, caplog
):
    plain.set("product:7", PICKLE)
    product = caches.value(shop.product)
    with caplog.at_level(logging.WARNING, "cacheupdater_client"):
        assert [await product(7) for _ in range(3)] == [BOOK] * 3
        assert await product.get_many([7]) == {7: BOOK}
    assert plain.get("product:7") == PICKLE
    assert shop.loads == [[7]] * 4
    assert product.value.counts.foreign == 4
    said = only_line(caplog)
    assert "Shop.product" in said
    assert "'product:{id:int}'" in said
    assert "Delete these values" in said
    assert ear.heard() == {(TOUCH, b"product:7"): 4}


def put_pickle(plain, key):
    plain.set(key, PICKLE)


def put_hash(plain, key):
    plain.hset(key, "name", "of somebody else")


def put_list(plain, key):
    plain.rpush(key, "of somebody else")


OTHER_TYPES = pytest.mark.parametrize("put", [put_hash, put_list])


@OTHER_TYPES
async def test_a_value_of_another_type_stays_and_each_read_loads_and_one_log_line_says_what_to_do(
    caches, shop, plain, caplog, put
):
    put(plain, "product:7")
    was = plain.dump("product:7")
    product = caches.value(shop.product)
    with caplog.at_level(logging.WARNING, "cacheupdater_client"):
        assert [await product(7) for _ in range(2)] == [BOOK] * 2
        assert await product(7, fresh_within="2s") == BOOK
        assert await product.get_many([7]) == {7: BOOK}
    assert plain.dump("product:7") == was
    assert shop.loads == [[7]] * 4
    assert product.value.counts.foreign == 4
    assert "Delete these values" in only_line(caplog)


@OTHER_TYPES
@pytest.mark.parametrize("settings", [{}, {"refresh_after": "1s"}, {"fail_safe": "1m"}])
async def test_among_many_keys_those_of_another_type_are_loaded(caches, shop, plain, put, settings):
    put(plain, "product:7")
    plain.set("product:8", b'{"name":"ball","price":1}')
    product = caches.values(shop.products, **settings)
    old = {"name": "ball", "price": 1}
    found = await product.get_many([7, 8, 9])
    # a value of unknown age is loaded anew meanwhile where its age counts, and a reader may see that load's end
    assert found in [{7: BOOK, 8: old}, *([{7: BOOK, 8: BALL}] if settings else [])]
    assert await product.get_many([7]) == {7: BOOK}
    assert plain.type("product:7") in (b"hash", b"list")


@pytest.mark.parametrize("encoding", ["json", "msgpack", "string"])
@OTHER_TYPES
async def test_no_encoding_takes_a_value_of_another_type(caches, plain, put, encoding):
    def title(id: int) -> str:
        return f"title {id}"

    put(plain, "title:7")
    was = plain.dump("title:7")
    assert await caches.value(title, "title:{id:int}", encoding=encoding)(7) == "title 7"
    assert plain.dump("title:7") == was


async def test_an_error_that_is_none_of_type_reaches_the_caller(caches, shop, plain, redis_url):
    plain.acl_setuser("few", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-get"])
    try:
        cache = caches.cache(username="few", password="any")
        product = caches.value(shop.product, cache=cache)
        with pytest.raises(NoPermissionError):
            await product(7)
        with pytest.raises(ResponseError, match=r"can't run this command|no permissions"):
            await product.get_many([7])
    finally:
        plain.acl_deluser("few")
    assert shop.loads == []


@pytest.mark.parametrize("put", [put_pickle, put_hash, put_list])
async def test_readers_of_such_a_value_at_the_same_time_all_get_the_row(caches, shop, plain, put):
    """One loads, and what it has loaded does not land; the others must not take the old value for it."""
    put(plain, "product:7")
    shop.gate.clear()
    product = caches.value(shop.product)
    reads = [asyncio.ensure_future(product(7)) for _ in range(5)]
    await shop.has_begun()
    shop.gate.set()
    assert await together(*reads) == [BOOK] * 5


async def test_a_pickle_that_comes_during_a_load_is_not_what_waiting_readers_get(caches, shop, plain):
    shop.gate.clear()
    product = caches.value(shop.product)
    reads = [asyncio.ensure_future(product(7)) for _ in range(5)]
    await shop.has_begun()
    plain.set("product:7", PICKLE)
    shop.gate.set()
    assert await together(*reads) == [BOOK] * 5


async def test_a_value_of_an_earlier_form_of_the_application_is_replaced(caches, shop, plain):
    """JSON, but not what the annotation says."""

    def title(id: int) -> str:
        return f"title {id}"

    plain.set("title:7", b'{"title":"an object"}')
    product = caches.value(title, "title:{id:int}")
    assert await product(7) == "title 7"
    assert plain.get("title:7") == b'"title 7"'
    assert product.value.counts.refilled == 1


async def test_a_loader_whose_result_does_not_fit_its_annotation_is_told_so(caches, plain):
    def title(id: int) -> str:
        return id

    with pytest.raises(msgspec.ValidationError, match="Expected `str`, got `int`"):
        await caches.value(title, "title:{id:int}")(7)


# --- what a fill may write ----------------------------------------------------------------------------


async def test_a_slow_fill_never_puts_an_old_value_over_a_new_one(caches, shop, plain, ear):
    slow, quick = Shop({7: BOOK}), shop
    slow.gate.clear()
    here = caches.value(slow.product, timeout="1s")  # its lease lives as long
    there = caches.value(quick.product)
    reading = asyncio.ensure_future(here(7))
    await slow.has_begun()
    quick.rows[7] = BALL
    await there.invalidate(7)
    assert await there(7) == BALL  # waits for the lease of the slow reader, which does not end it
    slow.gate.set()
    [late] = await together(reading)
    assert late == BOOK or isinstance(late, LoadTimeout)  # its caller had asked before the change
    assert await here(7) == await there(7) == BALL
    assert plain.get("product:7") == b'{"name":"ball","price":7}'


async def test_a_fill_that_redis_refuses_still_returns_the_value_and_leaves_a_miss(caches, shop, plain, ear):
    product = caches.value(shop.product)
    shop.gate.clear()
    reading = asyncio.ensure_future(product(7))
    await shop.has_begun()
    plain.config_set("maxmemory", 1)
    try:
        shop.gate.set()
        assert await reading == BOOK
    finally:
        plain.config_set("maxmemory", 0)
    assert product.value.counts.unfilled == 1
    assert ear.heard() == {(MISS, b"product:7"): 1}


async def test_a_redis_without_memory_gives_no_lease_and_no_reader_an_error(caches, shop, plain):
    product = caches.value(shop.product)
    plain.config_set("maxmemory", 1)
    try:
        assert await product(7) == BOOK
        assert await product.get_many([7, 8]) == {7: BOOK, 8: BALL}
    finally:
        plain.config_set("maxmemory", 0)
    assert product.value.counts.unfilled == 3


# --- hints --------------------------------------------------------------------------------------------


async def test_a_hit_and_a_filled_miss_leave_a_touch_and_an_absent_row_leaves_nothing(caches, shop, ear):
    product = caches.value(shop.product)
    await product(7)
    assert ear.heard() == {(TOUCH, b"product:7"): 1}
    await product(7)
    await product.get_many([7, 8])
    assert ear.heard() == {(TOUCH, b"product:7"): 2, (TOUCH, b"product:8"): 1}
    await product(9)
    await product(9)
    assert ear.heard() == {}
    await product.invalidate(7)
    assert ear.heard() == {(CHANGE, b"product:7"): 1}


async def test_a_refused_fill_leaves_a_miss(caches, shop, ear):
    shop.gate.clear()
    product = caches.value(shop.product)
    reading = asyncio.ensure_future(product(7))
    await shop.has_begun()
    await product.invalidate(7)
    shop.gate.set()
    assert await reading == BOOK
    assert ear.heard() == {(CHANGE, b"product:7"): 1, (MISS, b"product:7"): 1}


# --- forms --------------------------------------------------------------------------------------------


@dataclass
class Part:
    name: str
    price: Decimal


class Thing(msgspec.Struct):
    parts: list[Part]
    made: datetime


class Model(pydantic.BaseModel):
    name: str
    price: Decimal
    made: datetime
    parts: list[Part] = []


MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PART = Part("leg", Decimal("1.50"))


def part(id: int) -> Part:
    return PART


def thing(id: int) -> Thing:
    return Thing([PART], MADE)


def model(id: int) -> Model:
    return Model(name="table", price=Decimal("9.99"), made=MADE, parts=[PART])


def models(id: int) -> dict[str, list[Model]]:
    return {"all": [model(1), model(2)]}


@pytest.mark.parametrize("times", ["rfc3339", "iso"])
@pytest.mark.parametrize("numbers", ["text", "plain"])
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("loader", [part, thing, model, models])
async def test_a_result_comes_back_as_what_it_was(redis_url, loader, encoding, numbers, times):
    caches = Caches("sync", redis_url)
    value = caches.value(loader, "x:{id:int}", encoding=encoding, numbers=numbers, times=times)
    assert [await value(1), await value(1)] == [loader(1)] * 2
    assert (value.value.counts.loads, value.value.counts.refilled) == (1, 0)
    await caches.close()


def row(id: int) -> dict:
    return {"name": "book", "price": Decimal("9.90"), "made": MADE, "nan": float("nan"), "body": b"\x00\xff"}


@pytest.mark.parametrize("times", ["rfc3339", "iso", "str"])
@pytest.mark.parametrize("numbers", ["text", "plain"])
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_the_bytes_are_those_that_an_updater_writes(caches, plain, encoding, numbers, times):
    settings = {"encoding": encoding, "numbers": numbers, "times": times}
    await caches.value(row, "x:{id:int}", **settings)(1)
    assert plain.get("x:1") == encoder(encoding, numbers, times)(row(1))
    assert fence.form_of(int(plain.get(fence.floor_name(b"x:1")))) == encoding


async def test_a_model_is_written_as_its_row(caches, plain):
    await caches.value(model, "x:{id:int}")(1)
    fields = {
        "name": "table",
        "price": "9.99",
        "made": "2026-01-02T03:04:05Z",
        "parts": [{"name": "leg", "price": "1.50"}],
    }
    assert plain.get("x:1") == msgspec.json.encode(fields)


def title(id: int) -> str:
    return "Zoë"


def count(id: int) -> int:
    return 12


def body(id: int) -> bytes:
    return b"\x00\xff"


@pytest.mark.parametrize(
    ("loader", "encoding", "spelled"),
    [
        (title, "string", "Zoë".encode()),
        (count, "string", b"12"),
        (body, "raw", b"\x00\xff"),
        (body, "string", b"\x00\xff"),
    ],
)
async def test_plain_values_are_spelled_plainly(caches, plain, loader, encoding, spelled):
    value = caches.value(loader, "x:{id:int}", encoding=encoding)
    assert [await value(1), await value(1)] == [loader(1)] * 2
    assert plain.get("x:1") == spelled


# --- without Redis ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_a_redis_that_is_down_raises_what_get_raises(kind, shop):
    caches = Caches(kind, "redis://127.0.0.1:1", socket_connect_timeout=60.0, retry=None)
    product = caches.value(shop.product)
    with pytest.raises(redis.ConnectionError):
        await product(7)
    with pytest.raises(redis.ConnectionError):
        await product.get_many([7])
    with pytest.raises(redis.ConnectionError):
        await product(7, fresh_within="1s")
    assert shop.loads == []
    await caches.close()


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_a_redis_that_goes_down_during_a_load_costs_the_fill_alone_and_a_new_one_is_filled(
    kind, redis_server, shop
):
    caches = Caches(kind, redis_server.url, retry=None)
    product = caches.value(shop.product)
    shop.gate.clear()
    reading = asyncio.ensure_future(product(7))
    await shop.has_begun()
    redis_server.kill()
    shop.gate.set()
    assert await reading == BOOK
    with pytest.raises(redis.ConnectionError):
        await product(7)
    redis_server.start()
    assert await product(7) == BOOK  # the scripts are new to this Redis
    with redis.Redis.from_url(redis_server.url) as plain:
        assert plain.get("product:7")
    await caches.close()


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_a_faked_cache_needs_no_redis(kind, shop):
    caches = Caches(kind, "redis://127.0.0.1:1", socket_connect_timeout=60.0, retry=None)
    cache = caches.cache()
    product = caches.value(shop.product, cache=cache)
    now = 1_000.0
    with cache.faked(lambda: now) as fake:
        assert [await product(7), await product(7), await product(9)] == [BOOK, BOOK, None]
        assert shop.loads == [[7], [9]]
        now += 61.0
        assert await product(7) == BOOK
        await product.invalidate(7)
        assert fake.get(b"product:7") is None
    with pytest.raises(redis.ConnectionError):
        await product(7)
    await caches.close()


def test_a_forked_child_loads_on_its_own_while_its_parent_loads(redis_url):
    """The parent's flight would never land in the child, and a lock that a thread held would never be released."""
    program = f"""
import os, threading
from cacheupdater_client import Cache, Redis

cache = Cache(Redis.from_url({redis_url!r}, emit="none"))
parent, gate, began = os.getpid(), threading.Event(), threading.Event()

@cache.value("product:{{id:int}}", ttl="60s", timeout="300ms")
def product(id: int) -> str:
    if os.getpid() == parent:
        began.set()
        gate.wait()
    return "parent" if os.getpid() == parent else "child"

thread = threading.Thread(target=product, args=(7,))
thread.start()
began.wait()
child = os.fork()
if not child:
    os._exit(0 if product(7) == "child" and cache.stats()["product"].loads >= 1 else 1)
_, status = os.waitpid(child, 0)
gate.set()
thread.join()
print(os.waitstatus_to_exitcode(status), product(7))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.split() == ["0", "child"], done.stderr


def test_threads_that_wait_for_leases_ask_redis_together(redis_url, shop, plain):
    """However many wait: one MGET every 10 ms."""
    from cacheupdater_client import Cache, Redis

    with Redis.from_url(redis_url, emit="none") as client:
        cache = Cache(client)

        @cache.value("p:{id:int}", ttl="60s", timeout="30s")
        def value(id: int) -> int:
            return id

        leases = [fence.lease_name(b"p:%d" % number) for number in range(30)]
        for lease in leases:
            plain.set(lease, "another process", px=50_000)
        commands, began = Counting(plain), monotonic()
        threads = [threading.Thread(target=value, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        eventually(lambda: commands["mget"] >= 40)
        plain.delete(*leases)
        for thread in threads:
            thread.join()
        assert commands["mget"] <= (monotonic() - began) / POLL_S + 1


# as SECURITY.md has them
FEW_RIGHTS = [
    "~product:*",
    "~__crs:*",
    "-@all",
    "+time",
    "+evalsha",
    "+eval",
    "+get",
    "+set",
    "+pexpire",
    "+unlink",
    "+mget",
    "+pttl",
]


@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_the_documented_rights_are_enough(kind, redis_url, plain, shop):
    plain.execute_command("ACL SETUSER", "few", "reset", "on", ">secret", *FEW_RIGHTS)
    caches = Caches(kind, redis_url.replace("redis://", "redis://few:secret@"))
    product = caches.value(shop.product)
    try:
        assert [await product(7), await product(7), await product(9), await product(9)] == [
            BOOK,
            BOOK,
            None,
            None,
        ]
        assert await product.get_many([7, 8]) == {7: BOOK, 8: BALL}
        await product.invalidate(7)
        assert await product(7, fresh_within="1s") == BOOK
        reads = [
            asyncio.ensure_future(each(8, fresh_within="0s"))
            for each in (product, caches.value(shop.product))
        ]
        assert await together(*reads) == [BALL, BALL]
        old = caches.value(shop.product, refresh_after="10s", fail_safe="1h")
        assert await old(8) == BALL
        await old.invalidate(8, serve_old=True)
        assert await old(8) == BALL
    finally:
        await caches.close()
        plain.execute_command("ACL DELUSER", "few")
