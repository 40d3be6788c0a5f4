"""`instrument()`: redis-py's own classes leave hints as ours do, each command once, and `uninstrument()` undoes exactly that."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import threading
import weakref

import aiocache
import cashews
import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
from redis.crc import key_slot
from redis.exceptions import ResponseError
from stories.client import Both, Ear

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client import instrument, instrumenting, no_emit, uninstrument, wrap
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

CLASSES = list(instrumenting._METHODS)
KINDS = {"sync": redis.Redis, "asyncio": redis.asyncio.Redis}


def methods():
    """What redis-py's classes have, by class and name; but Python's own notes, such as pickle's `__slotnames__`."""
    return {
        (cls, name): each for cls in CLASSES for name, each in vars(cls).items() if not name.startswith("__")
    }


STOCK = methods()


@pytest.fixture
def idle():
    """An ear to which no `instrument` sends yet."""
    ear = Ear("test_instrument")
    ear.heard()
    return ear


@pytest.fixture
def ear(idle):
    instrument(emit=idle.url)
    yield idle
    uninstrument()
    assert methods() == STOCK


@pytest.fixture(params=KINDS)
async def both(request, redis_url, ear):
    client = KINDS[request.param].from_url(redis_url)
    yield Both(client)
    await client.aclose() if request.param == "asyncio" else client.close()


# --- each command, once -------------------------------------------------------------------------------


async def test_read_leaves_a_touch_or_a_miss_and_a_write_a_change(both, ear):
    await both.set("p:1", "v")
    await both.get("p:1")
    await both.get(b"p:1")
    await both.get("p:none")
    await both.mget("p:1", "p:none")
    await both.hgetall("p:none")
    await both.execute_command("get", "p:1")
    assert ear.heard() == {(CHANGE, b"p:1"): 1, (TOUCH, b"p:1"): 4, (MISS, b"p:none"): 3}


async def test_error_of_redis_leaves_no_hint(both, ear):
    await both.lpush("l", "x")
    ear.heard()
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await both.get("l")
    assert ear.heard() == {}


@pytest.mark.parametrize("kind", KINDS.values())
async def test_write_that_may_have_arrived_leaves_a_change(kind, ear):
    client = Both(kind(port=1, socket_connect_timeout=60.0, retry=None))
    for command in ("set", "a", 1), ("get", "b"):
        with pytest.raises(redis.ConnectionError):
            await getattr(client, command[0])(*command[1:])
    assert ear.heard() == {(CHANGE, b"a"): 1}


@pytest.mark.parametrize("transaction", [True, False])
async def test_pipeline_leaves_its_hints_when_it_has_run(both, ear, transaction):
    pipe = both.pipeline(transaction=transaction)
    await pipe.set("a", 1)
    await pipe.get("a")
    await pipe.get("none")
    assert ear.heard() == {}
    assert await pipe.execute() == [True, b"1", None]
    assert ear.heard() == {(CHANGE, b"a"): 1, (TOUCH, b"a"): 1, (MISS, b"none"): 1}
    await pipe.set("b", 1)
    await pipe.reset()
    assert pipe.client._queued == {}, "nothing is kept of the arguments"
    assert await pipe.execute() == []
    assert ear.heard() == {}


async def test_read_after_watch_leaves_its_hint_at_once(both, ear):
    pipe = both.pipeline()
    await pipe.watch("w")
    assert await pipe.get("w") is None
    assert ear.heard() == {(MISS, b"w"): 1}
    await pipe.reset()


def test_pipeline_of_a_module_is_reached(redis_url, ear):
    """Only redis-py's sync client has one that works."""
    with redis.Redis.from_url(redis_url) as client:
        pipe = client.json().pipeline()
        pipe.execute_command("GET", "none")
        assert pipe.execute() == [None]
    assert ear.heard() == {(MISS, b"none"): 1}


def test_every_way_to_a_client_is_reached(redis_url, ear):
    made = [redis.from_url(redis_url), redis.Redis.from_pool(redis.ConnectionPool.from_url(redis_url))]
    made.append(redis.Redis.from_url(redis_url).client())
    for client in made:
        client.get("k")
        client.close()
        client.connection_pool.disconnect()  # the pool of a client of one connection stays open
    assert ear.heard() == {(MISS, b"k"): 3}


def test_keys_have_the_clients_own_encoding(redis_url, ear):
    for encoding in "utf-8", "latin-1":
        with redis.Redis.from_url(redis_url, encoding=encoding) as client:
            client.get("é")
        assert ear.heard() == {(MISS, "é".encode(encoding)): 1}


def test_no_emit_and_only_hold(redis_url, ear):
    instrument(emit=ear.url, only=["p:"])
    with redis.Redis.from_url(redis_url) as client:
        with no_emit():
            client.get("p:quiet")
        client.get("p:1")
        client.get("q:1")
    assert ear.heard() == {(MISS, b"p:1"): 1}


# --- ours are counted once ----------------------------------------------------------------------------


async def test_our_own_and_wrapped_clients_count_once(redis_url, ear):
    """Whether they were there before, or have become ours since."""
    ours = cacheupdater_client.Redis.from_url(redis_url, emit=ear.url)
    plain = redis.Redis.from_url(redis_url)
    plain.get("k")  # known as redis-py's
    ear.heard()
    for client in ours, ours.client(), wrap(plain, emit=ear.url):
        client.get("k")
        client.hgetall("k")
        client.mget("k", "k")
        client.pipeline().get("k").mget("k").execute()
        assert ear.heard() == {(MISS, b"k"): 6}
    async with cacheupdater_client.asyncio.Redis.from_url(redis_url, emit=ear.url) as client:
        await client.get("k")
        await client.mget("k")
        await client.pipeline().get("k").mget("k").execute()
    assert ear.heard() == {(MISS, b"k"): 4}


def test_user_pipeline_that_queues_before_ours_takes_over_counts_once(redis_url, ear):
    class Queues(redis.Redis):
        def pipeline(self, *args, **options):
            pipe = super().pipeline(*args, **options)
            pipe.get("early")
            return pipe

    client = wrap(Queues.from_url(redis_url), emit=ear.url)
    with client.pipeline() as pipe:
        pipe.watch("k")
        pipe.get("k")
        assert ear.heard() == {(MISS, b"k"): 1}


def test_our_own_clients_keep_their_target(redis_url, ear):
    other = Ear("test_instrument_other")
    other.heard()
    with cacheupdater_client.Redis.from_url(redis_url, emit=other.url) as client, client.pipeline() as pipe:
        client.get("k")
        pipe.watch("k")
        pipe.get("k")
        pipe.multi()
        pipe.get("k")
        pipe.execute()
    assert other.heard() == {(MISS, b"k"): 3}
    assert ear.heard() == {}


def test_subclass_of_a_user_is_reached_beneath_its_own_method(redis_url, ear):
    class Quiet(redis.Redis):
        def execute_command(self, *args, **options):
            try:
                return super().execute_command(*args, **options)
            except redis.RedisError:
                return None

    with Quiet.from_url(redis_url) as client:
        client.get("k")
        client.lpush("l", "x")
        assert ear.heard() == {(MISS, b"k"): 1, (CHANGE, b"l"): 1}
        assert client.get("l") is None  # an error, and no miss
    assert ear.heard() == {}


# --- clusters -----------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "asyncio"])
async def cluster(request, redis_cluster, ear):
    where = {"host": "127.0.0.1", "port": redis_cluster.nodes[0].port}
    if request.param == "sync":
        with redis.RedisCluster(**where) as client:
            yield Both(client)
    else:
        async with redis.asyncio.RedisCluster(**where) as client:
            yield Both(client)


KEYS = [f"k:{number}" for number in range(8)]


async def test_call_of_a_cluster_counts_once_however_many_nodes_it_needs(cluster, ear):
    for key in KEYS[:4]:
        await cluster.set(key, "v")
    await cluster.mget_nonatomic(KEYS)
    await cluster.delete(*KEYS)
    heard = ear.heard()
    assert heard == {
        **{(CHANGE, key.encode()): 2 for key in KEYS[:4]},
        **{(CHANGE, key.encode()): 1 for key in KEYS[4:]},
        **{(TOUCH, key.encode()): 1 for key in KEYS[:4]},
        **{(MISS, key.encode()): 1 for key in KEYS[4:]},
    }


async def test_pipeline_of_a_cluster_counts_once(cluster, ear):
    pipe = cluster.pipeline()
    for key in KEYS:
        await pipe.set(key, "v")
        await pipe.get(key)
    await pipe.unlink(KEYS[0])
    await pipe.execute()
    heard = ear.heard()
    assert heard == {
        **{(CHANGE, key.encode()): 1 + (key == KEYS[0]) for key in KEYS},
        **{(TOUCH, key.encode()): 1 for key in KEYS},
    }


async def test_pipeline_repeated_for_a_moved_slot_counts_once(cluster, ear, redis_cluster):
    await cluster.get("a")
    ear.heard()
    home = redis_cluster.owner("a")
    for to in (next(each for each in redis_cluster.primaries() if each is not home), home):
        redis_cluster.wait_until_settled()  # everybody has heard of the last move
        redis_cluster.migrate_slot(key_slot(b"a"), to)
        pipe = cluster.pipeline()
        await pipe.get("a")
        await pipe.set("a", 1)
        await pipe.execute()
        assert set(ear.heard().values()) == {1}
        await cluster.delete("a")
        ear.heard()


async def test_commands_of_a_cluster_pipeline_that_bypass_execute_command_are_seen(cluster, ear):
    pipe = cluster.pipeline()
    if isinstance(cluster.client, redis.RedisCluster):
        pipe.client.delete("a")
        pipe.client.unlink("a")
        pipe.client.exists("a")
        expected = {(CHANGE, b"a"): 2, (MISS, b"a"): 1}
    else:
        await pipe.unlink("a")
        pipe.client.mset_nonatomic({"a": 1, "b": 2})
        expected = {(CHANGE, b"a"): 1, (CHANGE, b"b"): 1}  # UNLINK only makes room for the value that follows
    await pipe.execute()
    assert ear.heard() == expected


# --- undo ---------------------------------------------------------------------------------------------


def test_undo_is_exact_and_reaches_clients_and_pipelines_that_exist(redis_url, idle):
    ear = idle
    with redis.Redis.from_url(redis_url) as client:
        before = client.pipeline().get("p")
        instrument(emit=ear.url)
        client.get("k")  # made before
        before.get("q").execute()  # begun before: what was queued by then is not known
        assert ear.heard() == {(MISS, b"k"): 1, (MISS, b"q"): 1}
        during, bound = client.pipeline().get("p"), client.execute_command
        kept = client.pipeline().get("p").execute
        uninstrument()
        assert methods() == STOCK
        client.get("k")
        bound("GET", "k")
        during.execute()
        kept()
        assert ear.heard() == {}
        assert "_told" not in vars(client)


def test_a_second_call_moves_the_hints_and_counts_once(redis_url, ear):
    other = Ear("test_instrument_other")
    with redis.Redis.from_url(redis_url) as client:
        client.get("k")
        instrument(emit=other.url)
        instrument(emit=other.url)
        client.get("k")
        client.pipeline().get("k").execute()
    assert ear.heard() == {(MISS, b"k"): 1}
    assert other.heard() == {(MISS, b"k"): 2}


@pytest.mark.parametrize("emit", ["none", None])
def test_where_hints_go_nowhere_redis_pys_classes_stay_as_they_are(emit):
    instrument(emit=emit)
    assert methods() == STOCK


def test_disabled_by_the_environment_is_stock(monkeypatch):
    monkeypatch.setenv("CACHEUPDATER_DISABLED", "1")
    instrument(emit="memory://nobody")
    assert methods() == STOCK


def test_target_that_makes_no_sense_is_refused_and_changes_nothing(ear):
    during = methods()
    with pytest.raises(ValueError, match="is no target"):
        instrument(emit="gopher://x")
    with pytest.raises(ValueError, match="list of prefixes"):
        instrument(emit="memory://x", only="product:")
    assert methods() == during


def test_method_that_a_class_inherits_is_inherited_again(monkeypatch):
    monkeypatch.delattr(redis.cluster.ClusterPipeline, "unlink")
    before = methods()
    instrument(emit="memory://nobody")
    assert "unlink" in vars(redis.cluster.ClusterPipeline)
    uninstrument()
    assert methods() == before


def test_methods_look_as_before(ear):
    for cls in CLASSES:
        for name in instrumenting._METHODS[cls]:
            now, stock = vars(cls)[name], STOCK[cls, name]
            assert inspect.signature(now) == inspect.signature(stock)
            assert inspect.iscoroutinefunction(now) == inspect.iscoroutinefunction(stock), (cls, name)
            assert now.__doc__ == stock.__doc__


def test_client_and_pipeline_are_freed_at_once(redis_url, ear):
    gc.disable()
    try:
        client = redis.Redis.from_url(redis_url)
        client.get("k")
        pipe = client.pipeline().get("k")
        pipe.execute()
        watched = [weakref.ref(client), weakref.ref(pipe)]
        client.close()
        del client, pipe
        assert [each() for each in watched] == [None, None]
    finally:
        gc.enable()


# --- tracers ------------------------------------------------------------------------------------------


class Wrapper:
    """As wrapt's wrappers are: it sees the object only if it is bound to one, or found on the class."""

    def __init__(self, wrapped, seen, *, found=False):
        self.__wrapped__, self._seen, self._found = wrapped, seen, found

    def __get__(self, instance, owner):
        return Wrapper(self.__wrapped__.__get__(instance, owner), self._seen, found=True)

    def __call__(self, *args, **options):
        assert self._found
        self._seen.append(next(word for word in args if isinstance(word, str)))
        return self.__wrapped__(*args, **options)


def traced(seen):
    """What undoes it."""
    before = vars(redis.Redis)["execute_command"]
    redis.Redis.execute_command = Wrapper(before, seen)
    return lambda: setattr(redis.Redis, "execute_command", before)


def test_tracer_that_was_first_sees_every_command_and_stays(redis_url, idle):
    ear, seen = idle, []
    undo = traced(seen)
    patched = methods()
    instrument(emit=ear.url)
    with redis.Redis.from_url(redis_url) as client:
        client.get("k")
        uninstrument()
        assert methods() == patched
        client.get("k")
    undo()
    assert seen == ["GET", "GET"]
    assert ear.heard() == {(MISS, b"k"): 1}


def test_tracer_that_came_later_stays_and_what_is_beneath_it_goes_when_it_goes(redis_url, idle):
    ear, seen = idle, []
    instrument(emit=ear.url)
    undo = traced(seen)
    with (
        redis.Redis.from_url(redis_url) as client,
        cacheupdater_client.Redis.from_url(redis_url, emit="none") as ours,
    ):
        client.get("k")
        ours.get("k")
        assert ear.heard() == {(MISS, b"k"): 1}
        uninstrument()
        client.get("k")  # the tracer calls our method still, which does nothing
        assert ear.heard() == {}
        instrument(emit=ear.url)
        client.get("k")
        assert ear.heard() == {(MISS, b"k"): 1}, "the method beneath the tracer does not count, too"
        uninstrument()
        assert seen == ["GET"] * 4
    undo()
    uninstrument()
    assert methods() == STOCK


def test_mock_in_the_place_of_a_method_is_called_as_before(monkeypatch):
    from unittest import mock

    double = mock.Mock(return_value=b"v")
    monkeypatch.setattr(redis.Redis, "execute_command", double)
    instrument(emit="memory://nobody")
    assert redis.Redis().get("k") == b"v"
    double.assert_called_once_with("GET", "k", keys=["k"])
    uninstrument()
    assert vars(redis.Redis)["execute_command"] is double


# --- threads and processes ----------------------------------------------------------------------------


def test_threads_may_read_while_it_is_put_in_and_taken_out(redis_url, idle):
    over, failures = threading.Event(), []

    def read():
        try:
            with redis.Redis.from_url(redis_url) as client:
                while not over.is_set():
                    client.get("k")
                    client.pipeline().get("k").execute()
        except Exception as e:  # noqa: BLE001  whatever it is, the test shows it
            failures.append(e)

    def turn():
        for _ in range(30):
            instrument(emit=idle.url)
            uninstrument()

    readers = [threading.Thread(target=read) for _ in range(3)]
    turners = [threading.Thread(target=turn) for _ in range(2)]
    for each in (*readers, *turners):
        each.start()
    for each in turners:
        each.join()
    over.set()
    for each in readers:
        each.join()
    assert failures == []
    assert methods() == STOCK


FORKED = """
import os, sys, redis, cacheupdater_client as c
from stories.client import Ear
from cacheupdater_client.protocol.wire import MISS
ear = Ear("forked")
c.instrument(emit=ear.url)
client = redis.Redis.from_url(sys.argv[1])
client.get("parent")
if os.fork() == 0:
    ear = Ear("forked")
    client.get("child")
    assert ear.heard() == {(MISS, b"child"): 1}, "the parent's hints stay the parent's"
    c.uninstrument()
    client.get("child")
    assert ear.heard() == {}
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert ear.heard() == {(MISS, b"parent"): 1}
"""


def test_forked_child_goes_on(redis_url):
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", FORKED, redis_url],
        env={"PYTHONPATH": paths}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# --- the guard ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values())
async def test_fault_of_ours_never_reaches_the_application(kind, redis_url, ear, monkeypatch):
    def fails(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr("cacheupdater_client.instrumented.Spot._of", fails)
    faults = cacheupdater_client.stats()["faults"]
    client = Both(kind.from_url(redis_url))
    assert await client.get("none") is None
    pipe = client.pipeline()
    await pipe.get("none")
    assert await pipe.execute() == [None]
    assert cacheupdater_client.stats()["faults"] > faults
    await client.aclose() if kind is redis.asyncio.Redis else client.client.close()


# --- the frameworks -----------------------------------------------------------------------------------

# what both of them call
DEPRECATED = pytest.mark.filterwarnings("ignore:Call to deprecated close")


@DEPRECATED
async def test_cashews_leaves_hints_through_its_clients_and_its_own_pipelines(redis_url, ear):
    for suppress in (True, False):
        cache = cashews.Cache()
        cache.setup(redis_url, suppress=suppress)
        await cache.get("a")
        await cache.set_many({"a": {"n": 1}, "b": 2}, expire=60)  # a SafePipeline that no client has made
        assert await cache.get_many("a", "b", "none") == ({"n": 1}, 2, None)
        await cache.delete("a")
        await cache.close()
        heard = ear.heard()
        assert heard[CHANGE, b"a"] == 2
        assert heard[CHANGE, b"b"] == 1
        assert (heard[TOUCH, b"a"], heard[TOUCH, b"b"]) == (1, 1)
        assert (heard[MISS, b"a"], heard[MISS, b"none"]) == (1, 1)


@DEPRECATED
async def test_cashews_that_hides_a_dead_redis_leaves_no_miss(ear):
    cache = cashews.Cache()
    cache.setup("redis://127.0.0.1:1", suppress=True)
    assert await cache.get("a") is None
    await cache.set("b", 1)
    assert ear.heard() == {(CHANGE, b"b"): 1}
    await cache.close()


@DEPRECATED
async def test_aiocache_leaves_hints_through_its_client_and_its_transactions(redis_url, ear):
    cache = aiocache.Cache.from_url(redis_url)
    cache.namespace = "shop"
    await cache.get("a")
    await cache.multi_set([("a", {"n": 1}), ("b", 2)], ttl=60)
    assert await cache.multi_get(["a", "b", "none"]) == [{"n": 1}, 2, None]
    await cache.delete("a")
    await cache.close()
    assert ear.heard() == {
        (MISS, b"shop:a"): 1, (MISS, b"shop:none"): 1, (CHANGE, b"shop:a"): 2, (CHANGE, b"shop:b"): 1,
        (TOUCH, b"shop:a"): 1, (TOUCH, b"shop:b"): 1,
    }  # fmt: skip
