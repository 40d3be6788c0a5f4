"""Clients that find their primary through Sentinel leave the same hints as other clients, before and after a failover."""

from __future__ import annotations

import asyncio
import pickle

import pytest
import redis
import redis.asyncio
import redis.sentinel
from live.updater_process import eventually
from stories.client import Both, Ear
from suite.pace import PATIENCE_S

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client import Redis, Sentinel, wrap
from cacheupdater_client.asyncio import Redis as AsyncRedis
from cacheupdater_client.asyncio import Sentinel as AsyncSentinel
from cacheupdater_client.protocol.fence import floor_name
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH


@pytest.fixture
def ear():
    ear = Ear("test_client_sentinel")
    ear.heard()
    return ear


@pytest.fixture
def hosts(redis_sentinels):
    return [("127.0.0.1", each.port) for each in redis_sentinels.sentinels]


@pytest.fixture(params=[Sentinel, AsyncSentinel], ids=["sync", "asyncio"])
async def sentinel(request, hosts, ear):
    """With all clients that it has made closed in the end."""
    made = []

    class Remembering(request.param):
        def _made(self, *args, **options):
            made.append(super()._made(*args, **options))
            return made[-1]

    found = Remembering(hosts, emit=ear.url)
    yield found
    for client in (*made, *found.sentinels):
        await client.aclose() if request.param is AsyncSentinel else client.close()


async def test_master_and_replica_leave_hints_and_the_sentinels_none(sentinel, ear, redis_sentinels):
    master = sentinel.master_for(redis_sentinels.name)
    assert type(master) is (AsyncRedis if isinstance(sentinel, AsyncSentinel) else Redis)
    await Both(master).set("a", 1)
    await Both(master).get("a")
    await Both(sentinel).discover_master(redis_sentinels.name)
    assert ear.heard() == {(CHANGE, b"a"): 1, (TOUCH, b"a"): 1}
    for replica in (sentinel.slave_for(redis_sentinels.name), sentinel.replica_for(redis_sentinels.name)):
        assert (await Both(replica).role())[0] == b"slave"
        await Both(replica).get("none")
        pipe = Both(replica).pipeline(transaction=False)
        await pipe.get("none")
        await pipe.execute()
    assert ear.heard() == {(MISS, b"none"): 4}


async def test_emit_and_only_may_be_given_for_one_client(sentinel, ear, redis_sentinels):
    quiet = sentinel.master_for(redis_sentinels.name, emit="none")
    picky = sentinel.master_for(redis_sentinels.name, only=["p:"])
    for client in (quiet, picky):
        await Both(client).get("a")
        await Both(client).get("p:a")
    assert ear.heard() == {(MISS, b"p:a"): 1}
    with pytest.raises(ValueError, match="only"):
        sentinel.master_for(redis_sentinels.name, only="p:")


async def test_environment_that_makes_no_sense_does_not_matter_where_emit_is_given(
    sentinel, redis_sentinels, monkeypatch
):
    monkeypatch.setenv("CACHEUPDATER_EMIT", "nonsense")
    assert sentinel.master_for(redis_sentinels.name) is not None
    with pytest.raises(ValueError, match="nonsense"):
        sentinel.master_for(redis_sentinels.name, emit="auto")


async def test_other_class_that_is_asked_for_is_what_one_gets(sentinel, ear, redis_sentinels):
    plain = redis.asyncio.Redis if isinstance(sentinel, AsyncSentinel) else redis.Redis
    client = sentinel.master_for(redis_sentinels.name, plain, decode_responses=True)
    assert type(client) is plain
    await Both(client).get("a")
    assert ear.heard() == {}
    await Both(wrap(client, emit=ear.url)).get("a")
    assert ear.heard() == {(MISS, b"a"): 1}
    mine = type("Mine", (sentinel._clients,), {})
    await Both(sentinel.master_for(redis_sentinels.name, redis_class=mine)).get("a")
    assert ear.heard() == {(MISS, b"a"): 1}


async def test_fenced_calls_go_to_the_primary(sentinel, ear, redis_sentinels):
    master = Both(sentinel.master_for(redis_sentinels.name))
    since = await master.token("p:1")
    assert await master.write_through("p:1", "v", ttl=10, since=since)
    await master.invalidate("p:1", "p:2")
    assert await master.mget("p:1", "p:2") == [None, None]
    assert len(redis_sentinels.tell(redis_sentinels.primary(), "GET", floor_name(b"p:2"))) == 19
    assert ear.heard()[CHANGE, b"p:1"] == 2


async def read_until(client, good):
    """Reads until `good` reads in a row have succeeded; what was read, and what was raised."""
    read, raised, row = 0, set(), 0
    while row < good:
        try:
            await Both(client).get("none")
        except redis.RedisError as e:
            raised.add(type(e))
            row = 0
            await asyncio.sleep(0.02)
        else:
            read, row = read + 1, row + 1
    return read, raised


async def test_hints_and_fenced_calls_go_on_when_the_primary_dies_while_it_is_read(
    sentinel, ear, redis_sentinels
):
    master = sentinel.master_for(redis_sentinels.name, socket_timeout=PATIENCE_S)  # a killed server hangs up
    read, _ = await read_until(master, 10)
    dead = redis_sentinels.primary()
    dead.kill()
    more, raised = await read_until(master, 10)
    assert ear.heard() == {(MISS, b"none"): read + more}
    assert raised
    assert {each.__module__ for each in raised} <= {
        "redis.exceptions",
        "redis.sentinel",
        "redis.asyncio.sentinel",
    }
    eventually(lambda: redis_sentinels.primary() is not dead)  # each sentinel hears of it in its own time
    both = Both(master)
    await both.invalidate("a")  # the new primary does not know the script
    assert await both.write_through("b", "v", ttl=10, since=await both.token("b"))
    assert ear.heard() == {(CHANGE, b"a"): 1, (CHANGE, b"b"): 1}


def test_classes_are_found_by_name():
    for cls in (Sentinel, AsyncSentinel):
        assert pickle.loads(pickle.dumps(cls)) is cls
    assert issubclass(Sentinel, redis.sentinel.Sentinel)
    assert issubclass(AsyncSentinel, redis.asyncio.sentinel.Sentinel)
    assert (cacheupdater_client.Sentinel, cacheupdater_client.asyncio.Sentinel) == (Sentinel, AsyncSentinel)


async def test_invalidate_leaves_a_primary_that_was_demoted(sentinel, ear, redis_sentinels):
    """Its script answers key by key; a replica must be an error of the call, or redis-py would stay with it."""
    master = Both(sentinel.master_for(redis_sentinels.name))
    await master.invalidate("a")
    old = redis_sentinels.primary()
    await asyncio.to_thread(redis_sentinels.failover)
    await asyncio.to_thread(redis_sentinels.demote, old)
    for _ in range(2):  # redis-py tells the first one of the lost primary
        try:
            await master.invalidate("a")
        except (redis.ConnectionError, redis.exceptions.ReadOnlyError):
            continue
        break
    else:
        pytest.fail("it stays with the old primary")
    assert redis_sentinels.tell(redis_sentinels.primary(), "EXISTS", floor_name(b"a")) == 1
