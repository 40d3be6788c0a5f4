"""The clients as drop-in replacements: replies are redis-py's, and each command leaves the right hints."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio
from redis.exceptions import DataError, NoPermissionError, ResponseError, WatchError
from servers.lossy_redis import LossyRedis
from stories.client import Both, Ear, outcome
from suite.pace import left_ms

from cacheupdater_client import Redis, wrap
from cacheupdater_client.asyncio import Redis as AsyncRedis
from cacheupdater_client.commands import COMMANDS, hints_of
from cacheupdater_client.protocol.fence import floor_name
from cacheupdater_client.protocol.wire import CHANGE, MISS, SET, TOUCH


@pytest.fixture
def ear():
    ear = Ear("test_client_redis")
    ear.heard()
    return ear


@pytest.fixture
def r(redis_url, ear):
    with Redis.from_url(redis_url, emit=ear.url) as client:
        yield client


@pytest.fixture
async def ar(redis_url, ear):
    async with AsyncRedis.from_url(redis_url, emit=ear.url) as client:
        yield client


@pytest.fixture(params=["sync", "asyncio"])
async def both(request, redis_url, ear):
    if request.param == "sync":
        with Redis.from_url(redis_url, emit=ear.url) as client:
            yield Both(client)
    else:
        async with AsyncRedis.from_url(redis_url, emit=ear.url) as client:
            yield Both(client)


# --- reads and writes ---------------------------------------------------------------------------------


async def test_read_leaves_a_touch_or_a_miss_each_counted_once(both, ear):
    await both.set("p:1", "v")
    await both.hset("p:h", mapping={"f": "v"})
    ear.heard()
    await both.get("p:1")
    await both.get("p:1")
    await both.get("p:none")
    await both.hgetall("p:h")
    await both.hgetall("p:noh")
    await both.mget("p:1", "p:none")
    await both.hget("p:h", "f")
    await both.hget("p:h", "null")
    await both.hmget("p:h", ["null", "nought"])
    await both.execute_command("get", "p:1")
    assert ear.heard() == {
        (TOUCH, b"p:1"): 4,
        (MISS, b"p:none"): 2,
        (TOUCH, b"p:h"): 4,
        (MISS, b"p:noh"): 1,
    }


async def test_write_leaves_a_change(both, ear):
    await both.set("a", 1)
    await both.hset("h", "f", 1)
    await both.delete("a", "b")
    await both.getset("c", 1)
    sets, others = [(SET, key) for key in (b"a", b"h", b"c")], [(CHANGE, key) for key in (b"a", b"b")]
    assert ear.heard(exact=True) == dict.fromkeys([*sets, *others], 1)


@pytest.mark.parametrize(
    "key",
    ["ключ", b"\xff\x00", 7, 1.5, memoryview(b"mv"), pytest.param(bytearray(b"ba"), id="bytearray")],
)
async def test_key_of_any_type_arrives_as_the_bytes_that_redis_saw(both, ear, key):
    await both.set(key, "v")
    (name,) = await both.keys("*")
    await both.get(key)
    assert ear.heard() == {(CHANGE, name): 1, (TOUCH, name): 1}


async def test_error_of_redis_leaves_no_hint(both, ear):
    await both.lpush("l", "x")
    ear.heard()
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await both.get("l")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await both.incr("l")
    with pytest.raises(DataError):
        await both.get(None)
    assert ear.heard() == {}


async def test_write_that_may_have_arrived_leaves_a_change_and_redis_pys_error(ear):
    down = {"socket_connect_timeout": 0.2, "retry": None}
    client = Redis(port=1, emit=ear.url, **down)
    with pytest.raises(redis.ConnectionError):
        client.set("a", 1)
    with pytest.raises(redis.ConnectionError):
        client.get("b")
    assert ear.heard(exact=True) == {(CHANGE, b"a"): 1}


def test_replies_are_decoded_if_asked_for(redis_url, ear):
    with Redis.from_url(redis_url, emit=ear.url, decode_responses=True) as client:
        client.set("é", "ü")
        assert client.get("é") == "ü"
    assert ear.heard() == {(CHANGE, "é".encode()): 1, (TOUCH, "é".encode()): 1}


def test_client_side_cache_still_works(every_redis_url, ear):
    from redis.cache import CacheConfig

    with Redis.from_url(every_redis_url, emit=ear.url, protocol=3, cache_config=CacheConfig()) as client:
        try:
            client.set("k", "v")
        except redis.ConnectionError as e:
            pytest.skip(f"this Redis has no client-side caching: {e}")
        assert [client.get("k"), client.get("k"), client.hgetall("none")] == [b"v", b"v", {}]
    assert ear.heard() == {(CHANGE, b"k"): 1, (TOUCH, b"k"): 2, (MISS, b"none"): 1}


# --- pipelines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction", [True, False])
async def test_pipeline_leaves_hints_by_reply_after_execute(both, ear, transaction):
    await both.set("a", 1)
    ear.heard()
    pipe = both.pipeline(transaction=transaction)
    await pipe.get("a")
    await pipe.get("none")
    await pipe.set("w", 1)
    await pipe.mget("a", "none")
    assert ear.heard() == {}
    assert await pipe.execute() == [b"1", None, True, [b"1", None]]
    assert ear.heard() == {(TOUCH, b"a"): 2, (MISS, b"none"): 2, (CHANGE, b"w"): 1}
    await pipe.get("a")
    await pipe.reset()
    assert await pipe.execute() == []
    await pipe.get("none")
    assert await pipe.execute() == [None]
    assert ear.heard() == {(MISS, b"none"): 1}


@pytest.mark.parametrize("transaction", [True, False])
async def test_pipeline_with_errors_as_replies_leaves_hints_for_the_rest(both, ear, transaction):
    await both.lpush("l", "x")
    ear.heard()
    pipe = both.pipeline(transaction=transaction)
    await pipe.get("l")
    await pipe.get("none")
    await pipe.incr("l")
    replies = await pipe.execute(raise_on_error=False)
    assert [type(reply) for reply in replies] == [ResponseError, type(None), ResponseError]
    assert ear.heard() == {(MISS, b"none"): 1}


async def test_pipeline_that_raises_leaves_changes_for_what_may_have_been_written(both, ear):
    await both.lpush("l", "x")
    ear.heard()
    pipe = both.pipeline(transaction=False)
    await pipe.set("w", 1)
    await pipe.get("w")
    await pipe.incr("l")
    with pytest.raises(ResponseError, match="Command # 3"):
        await pipe.execute()
    assert ear.heard() == {(CHANGE, b"w"): 1, (CHANGE, b"l"): 1}


def test_reads_after_watch_leave_hints_at_once_and_a_lost_race_none(r, ear, redis_url):
    other = redis.Redis.from_url(redis_url)
    with r.pipeline() as pipe:
        pipe.watch("w")
        assert pipe.get("w") is None
        assert ear.heard() == {(MISS, b"w"): 1}
        other.set("w", 1)
        pipe.multi()
        pipe.set("w", 2)
        with pytest.raises(WatchError):
            pipe.execute()
    assert ear.heard() == {}

    def work(pipe):
        pipe.multi()
        pipe.incr("w")

    assert r.transaction(work, "w") == [2]
    assert ear.heard() == {(CHANGE, b"w"): 1}
    other.close()


@pytest.mark.parametrize("kind", [Redis, AsyncRedis])
async def test_transaction_whose_answer_was_lost_after_watch_leaves_changes(kind, redis_url, ear):
    with LossyRedis(redis_url, loses=b"EXEC") as lossy:
        client = Both(kind.from_url(lossy.url, emit=ear.url))
        pipe = client.pipeline()
        await pipe.watch("w")
        pipe.client.multi()
        await pipe.set("w", 2)
        with pytest.raises(WatchError):
            await pipe.execute()
        await client.aclose() if kind is AsyncRedis else client.client.close()
    with redis.Redis.from_url(redis_url) as other:
        assert other.get("w") == b"2"  # Redis had done it
    assert ear.heard() == {(CHANGE, b"w"): 1}


async def test_asyncio_reads_after_watch_leave_hints_at_once(ar, ear):
    async with ar.pipeline() as pipe:
        await pipe.watch("w")
        assert await pipe.get("w") is None
        pipe.multi()
        pipe.set("w", 2)
        await pipe.execute()
    assert ear.heard() == {(MISS, b"w"): 1, (CHANGE, b"w"): 1}


def test_pipelines_offer_no_fenced_calls(r):
    assert not any(hasattr(r.pipeline(), name) for name in ("invalidate", "token", "write_through"))


# --- fenced calls -------------------------------------------------------------------------------------


async def test_invalidate_removes_and_raises_the_floor(both, ear, redis_url):
    await both.mset({f"p:{number}": 1 for number in range(250)})
    ear.heard()
    keys = [f"p:{number}" for number in range(250)]
    await both.invalidate(*keys)
    assert await both.mget(keys) == [None] * 250
    assert len(await both.get(floor_name(b"p:7"))) == 19
    assert {key for kind, key in ear.heard() if kind == CHANGE} == {key.encode() for key in keys}


async def test_invalidate_puts_a_floor_where_something_else_stood(both):
    keys = [f"p:{number}" for number in range(250)]
    await both.mset(dict.fromkeys(keys, 1))
    for bad in (b"p:7", b"p:107"):
        await both.rpush(floor_name(bad), "no floor")
    await both.invalidate(*keys)
    assert await both.mget(keys) == [None] * 250
    assert await both.get(floor_name(b"p:7"))


@pytest.fixture
def forbidden(redis_url):
    """The name of a user who may touch no key that begins with q:."""
    with redis.Redis.from_url(redis_url) as admin:
        admin.acl_setuser("careful", enabled=True, nopass=True, keys=["p:*", "__crs:*"], categories=["+@all"])
        admin.mset({"q:1": 1, "q:2": 1})
        yield "careful"
        admin.acl_deluser("careful")


async def test_invalidate_of_a_key_that_redis_forbids_invalidates_the_others(both, forbidden, redis_url, ear):
    """250 keys are three calls: what the first cannot do keeps neither its own other keys nor the other calls' from it."""
    keys = [f"p:{number}" for number in range(250)]
    await both.mset(dict.fromkeys(keys, 1))
    kind = AsyncRedis if isinstance(both.client, AsyncRedis) else Redis
    careful = Both(kind.from_url(redis_url, emit=ear.url, username=forbidden, password="any"))
    await both.script_flush()
    with pytest.raises(NoPermissionError, match=r"\(not invalidated: q:1, q:2\)"):
        await careful.invalidate(*keys[:20], "q:1", *keys[20:150], "q:2", *keys[150:])
    assert await both.mget(keys) == [None] * 250
    assert await both.mget(["q:1", "q:2"]) == [b"1", b"1"]
    await careful.aclose() if kind is AsyncRedis else careful.client.close()


async def test_fenced_calls_survive_a_flush_of_scripts(both, redis_url):
    await both.invalidate("a")
    await both.script_flush()
    await both.invalidate("a")
    await both.script_flush()
    assert await both.write_through("b", "v", ttl=10, since=await both.token())


@pytest.mark.parametrize("ttl", [900, 900.5, timedelta(minutes=15)])
async def test_write_through_sets_with_its_ttl(both, ear, ttl):
    began = time.monotonic()
    since = await both.token()
    assert await both.write_through("p:1", "v", ttl=ttl, since=since) is True
    assert await both.get("p:1") == b"v"
    left = await both.pttl("p:1")
    assert left_ms(900_000, began) <= left <= 900_500
    assert ear.heard(exact=True)[SET, b"p:1"] == 1


async def test_write_through_removes_when_something_newer_has_happened(both, ear):
    since = await both.token()
    await both.invalidate("p:1")
    assert await both.write_through("p:1", "old", ttl=10, since=since) is False
    assert await both.get("p:1") is None
    assert ear.heard(exact=True) == {(CHANGE, b"p:1"): 2, (MISS, b"p:1"): 1}


async def test_token_is_redis_time_in_nineteen_digits(both):
    first, second = await both.token(), await both.token()
    assert len(str(first)) == 19
    assert first % 1000 == 0
    assert first < second


@pytest.mark.parametrize("ttl", [0, -1, 0.0001])
async def test_write_through_refuses_a_ttl_that_is_none(both, ttl):
    with pytest.raises(DataError, match="millisecond"):
        await both.write_through("p:1", "v", ttl=ttl, since=1)


async def test_change_is_left_even_if_redis_failed(ear):
    down = {"host": "127.0.0.1", "port": 1, "socket_connect_timeout": 0.2, "retry": None, "emit": ear.url}
    with pytest.raises(redis.ConnectionError):
        Redis(**down).invalidate("a", "b")
    with pytest.raises(redis.ConnectionError):
        await AsyncRedis(**down).write_through("c", "v", ttl=1, since=1)
    assert ear.heard(exact=True) == {(CHANGE, key): 1 for key in (b"a", b"b", b"c")}


async def test_invalidate_of_nothing_is_nothing(both, ear):
    await both.invalidate()
    assert ear.heard() == {}


# --- classes ------------------------------------------------------------------------------------------


class Prefixing(redis.Redis):
    """A user's class that sees every command."""

    seen = ()

    def execute_command(self, *args, **options):
        self.seen = (*self.seen, args[0])
        return super().execute_command(*args, **options)


def test_wrapped_client_stays_what_it_was_and_leaves_hints(redis_url, ear):
    client = redis.Redis.from_url(redis_url)
    assert wrap(client, emit=ear.url) is client
    assert type(client) is Redis
    client.get("a")
    assert ear.heard() == {(MISS, b"a"): 1}
    client.close()


def test_wrapped_client_of_a_users_class_keeps_its_ways(redis_url, ear):
    client = wrap(Prefixing.from_url(redis_url), emit=ear.url)
    assert isinstance(client, Prefixing)
    client.get("a")
    assert client.seen == ("GET",)
    with client.pipeline() as pipe:
        pipe.get("a")
        pipe.execute()
    assert ear.heard() == {(MISS, b"a"): 2}
    assert type(wrap(Prefixing.from_url(redis_url), emit=ear.url)) is type(client)
    client.close()


async def test_wrapped_asyncio_client_leaves_hints(redis_url, ear):
    client = wrap(redis.asyncio.Redis.from_url(redis_url), emit=ear.url)
    assert type(client) is AsyncRedis
    await client.get("a")
    assert ear.heard() == {(MISS, b"a"): 1}
    await client.aclose()


@pytest.mark.parametrize("thing", [object(), 7, redis.Redis().pipeline()])
def test_wrap_refuses_what_is_no_client(thing):
    with pytest.raises(TypeError, match="client"):
        wrap(thing, emit="none")


def test_subclass_with_its_own_execute_command_sees_every_read(redis_url, ear):
    class Mine(Redis):
        seen = ()

        def execute_command(self, *args, **options):
            self.seen = (*self.seen, args[0])
            return super().execute_command(*args, **options)

    class Mixed(Redis, Prefixing):
        pass

    for cls in (Mine, Mixed):
        with cls.from_url(redis_url, emit=ear.url) as client:
            client.get("a")
            client.hgetall("a")
            assert client.seen == ("GET", "HGETALL")
            assert ear.heard() == {(MISS, b"a"): 2}


@pytest.mark.parametrize("client", [Redis, AsyncRedis])
def test_subclass_without_its_own_execute_command_keeps_the_short_ways(client):
    class Named(client):
        pass

    assert (Named.get, Named.hgetall) == (client.get, client.hgetall)


def test_single_connection_client_shares_the_emitter(r, ear):
    with r.client() as single:
        single.get("a")
    assert ear.heard() == {(MISS, b"a"): 1}


def test_classes_are_found_by_name():
    import copy
    import pickle

    pipeline = type(Redis(emit="none").pipeline())
    for cls in (Redis, AsyncRedis, pipeline):
        assert pickle.loads(pickle.dumps(cls)) is cls
        assert copy.copy(cls) is cls


def test_client_that_emits_nothing_is_plain(redis_url, ear, monkeypatch):
    monkeypatch.setenv("CACHEUPDATER_DISABLED", "1")
    with Redis.from_url(redis_url, emit=ear.url) as client:
        client.set("a", 1)
        assert client.get("a") == b"1"
        assert client.mget("a", "b") == [b"1", None]
        client.invalidate("a")
    assert ear.heard() == {}


@pytest.mark.parametrize("cls", [Redis, AsyncRedis])
async def test_environment_that_makes_no_sense_does_not_matter_to_a_client_that_is_told_where(
    cls, ear, redis_url, monkeypatch
):
    monkeypatch.setenv("CACHEUPDATER_EMIT", "nonsense")
    for emit in (ear.url, "none"):
        client = cls.from_url(redis_url, emit=emit)
        single = client.client()
        await Both(single).get("a")
        for each in (single, client):
            await each.aclose() if cls is AsyncRedis else each.close()
    assert ear.heard() == {(MISS, b"a"): 1}
    with pytest.raises(ValueError, match="nonsense"):
        cls.from_url(redis_url)


@pytest.mark.parametrize("cls", [Redis, AsyncRedis])
async def test_client_of_a_pool_is_told_where_its_hints_go_and_owns_the_pool(
    cls, ear, redis_url, monkeypatch
):
    monkeypatch.setenv("CACHEUPDATER_EMIT", "nonsense")
    pools = (redis.asyncio if cls is AsyncRedis else redis).ConnectionPool
    for emit, only in ((ear.url, ["a"]), ("none", None)):
        pool = pools.from_url(redis_url)
        client = cls.from_pool(pool, emit=emit, only=only)
        await Both(client).mget("a", "b")
        assert client.auto_close_connection_pool
        await client.aclose() if cls is AsyncRedis else client.close()
    assert ear.heard() == {(MISS, b"a"): 1}
    with pytest.raises(ValueError, match="nonsense"):
        cls.from_pool(connection_pool=pool)


def test_client_that_a_class_makes_for_itself_leaves_hints_too(ear, monkeypatch, redis_url):
    class Pair(Redis):
        def __init__(self, **options):
            self.other = Redis(port=urlsplit(redis_url).port)
            super().__init__(**options)

    monkeypatch.setenv("CACHEUPDATER_EMIT", ear.url)
    with Pair.from_url(redis_url, emit="none") as client:
        client.get("a")
        client.other.get("b")
        client.other.close()
    assert ear.heard() == {(MISS, b"b"): 1}


def test_topic_that_is_no_address_is_refused_when_the_client_is_made():
    with pytest.raises(ValueError, match=r"kafka://host:9092"):
        Redis(emit="kafka://h/t")


async def test_many_loops_and_threads_share_one_target(redis_url, ear):
    import threading

    def run(name):
        async def main():
            async with AsyncRedis.from_url(redis_url, emit=ear.url) as client:
                await asyncio.gather(*(client.get(f"{name}:{number}") for number in range(50)))

        asyncio.run(main())

    threads = [threading.Thread(target=run, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert ear.heard().total() == 150


# --- random programs ----------------------------------------------------------------------------------

KEYS = ["a", "b", "c", b"d", "é"]


def random_command(chance):
    key, other = chance.choice(KEYS), chance.choice(KEYS)
    return chance.choice(
        [
            ("get", key), ("get", key), ("set", key, chance.randint(0, 9)), ("mget", [key, other]), ("mget", key, other),
            ("delete", key), ("unlink", key, other), ("hset", key, "f", "v"), ("hget", key, "f"), ("hgetall", key),
            ("hmget", key, ["f", "g"]), ("hdel", key, "f"), ("lpush", key, "x"), ("lrange", key, 0, -1), ("llen", key),
            ("sadd", key, "m"), ("smembers", key), ("sismember", key, "m"), ("zadd", key, {"m": 1}), ("zrange", key, 0, -1),
            ("zscore", key, "m"), ("incr", key), ("append", key, "x"), ("strlen", key), ("exists", key, other),
            ("getdel", key), ("getex", key), ("rename", key, other), ("type", key), ("mset", {"a": 1, "b": 2}),
            ("set", key, "v", 100), ("getrange", key, 0, 2), ("hlen", key), ("scard", key), ("zcard", key), ("ping",),
        ]
    )  # fmt: skip


def play(client, program):
    outcomes = []
    for step in program:
        if isinstance(step, tuple):
            outcomes.append(outcome(lambda step=step: getattr(client, step[0])(*step[1:])))
        else:
            pipe = client.pipeline(transaction=step["transaction"])
            for name, *args in step["commands"]:
                getattr(pipe, name)(*args)
            outcomes.append(outcome(lambda pipe=pipe, step=step: pipe.execute(raise_on_error=step["raises"])))
    return outcomes


async def play_async(client, program):
    outcomes = []
    for step in program:
        try:
            if isinstance(step, tuple):
                reply = await getattr(client, step[0])(*step[1:])
            else:
                pipe = client.pipeline(transaction=step["transaction"])
                for name, *args in step["commands"]:
                    getattr(pipe, name)(*args)
                reply = await pipe.execute(raise_on_error=step["raises"])
        except redis.RedisError as e:
            outcomes.append((type(e), str(e)))
        else:
            outcomes.append(outcome(lambda reply=reply: reply))
    return outcomes


def random_program(seed):
    chance = random.Random(seed)
    return [
        random_command(chance)
        if chance.random() < 0.8
        else {
            "transaction": chance.random() < 0.5,
            "raises": chance.random() < 0.5,
            "commands": [random_command(chance) for _ in range(chance.randint(0, 6))],
        }
        for _ in range(60)
    ]


@pytest.mark.parametrize("seed", range(15))
async def test_random_program_gets_the_replies_of_redis_py(seed, redis_url, ear):
    program = random_program(seed)
    with redis.Redis.from_url(redis_url) as plain, Redis.from_url(redis_url, emit=ear.url) as ours:
        expected = play(plain, program)
        plain.flushdb()
        assert play(ours, program) == expected
        plain.flushdb()
        async with redis.asyncio.Redis.from_url(redis_url) as aplain:
            expected = await play_async(aplain, program)
        plain.flushdb()
        async with AsyncRedis.from_url(redis_url, emit=ear.url) as aours:
            assert await play_async(aours, program) == expected
    assert ear.heard()


# --- the table against the server ---------------------------------------------------------------------

EXAMPLES = {
    "BITFIELD": "k GET u8 0", "BITFIELD_RO": "k GET u8 0", "BITOP": "AND d a b", "BLMOVE": "a b LEFT RIGHT 1", "BLMPOP": "1 2 a b LEFT",
    "BLPOP": "a b 1", "BRPOP": "a b 1", "BZPOPMIN": "a b 1", "BZPOPMAX": "a b 1", "BRPOPLPUSH": "a b 1", "BZMPOP": "1 2 a b MIN",
    "COPY": "a d", "EXISTS": "a b", "GEOADD": "k 1 1 m", "GEOSEARCH": "k FROMMEMBER m BYRADIUS 1 m", "GEORADIUS_RO": "k 1 1 1 m", "GEORADIUS": "k 1 1 1 m", "MSETEX": "2 a 1 b 2",
    "GEORADIUSBYMEMBER": "k m 1 m", "LMOVEM": "a b LEFT RIGHT", "BLMOVEM": "a b LEFT RIGHT 1", "SDIFFCARD": "2 a b", "SUNIONCARD": "2 a b",
    "GEORADIUSBYMEMBER_RO": "k m 1 m", "GEOSEARCHSTORE": "d a FROMMEMBER m BYRADIUS 1 m", "GEODIST": "k a b", "LCS": "a b", "LINSERT": "k BEFORE a b",
    "LMOVE": "a b LEFT RIGHT", "LMPOP": "2 a b LEFT", "MGET": "a b", "MSET": "a 1 b 2", "MSETNX": "a 1 b 2", "PFMERGE": "d a", "PFCOUNT": "a b",
    "RENAME": "a b", "RENAMENX": "a b", "RPOPLPUSH": "a b", "SDIFF": "a b", "SDIFFSTORE": "d a b", "SINTER": "a b", "SINTERCARD": "2 a b",
    "SINTERSTORE": "d a b", "SMOVE": "a b m", "SUNION": "a b", "SUNIONSTORE": "d a b", "UNLINK": "a b", "DEL": "a b", "ZDIFF": "2 a b",
    "ZDIFFSTORE": "d 2 a b", "ZINTER": "2 a b", "ZINTERCARD": "2 a b", "ZINTERSTORE": "d 2 a b", "ZMPOP": "2 a b MIN", "ZRANGESTORE": "d a 0 1",
    "ZUNION": "2 a b", "ZUNIONSTORE": "d 2 a b", "HSETEX": "k FIELDS 1 f v", "HGETEX": "k FIELDS 1 f", "HGETDEL": "k FIELDS 1 f", "RESTORE": "k 0 v",
}  # fmt: skip
WRITES_ONLY_ITS_FIRST = {name for name in COMMANDS if str(name).endswith("STORE")} - {"RESTORE"} | {
    "PFMERGE",
    "BITOP",
    "COPY",
}


def test_commands_have_their_keys_where_the_server_sees_them(every_redis_url):
    compared = 0
    with redis.Redis.from_url(every_redis_url) as client:
        for name in sorted(map(str, COMMANDS)):
            (info,) = client.execute_command("COMMAND INFO", name)
            if info is None:  # this Redis is older than the command
                continue
            words = [
                name,
                *EXAMPLES.get(name, " ".join(["k", *map(str, range(1, abs(info[1]) - 1))])).split(),
            ]
            keys = list(COMMANDS[name].keys_of(words))
            expected = client.execute_command("COMMAND GETKEYS", *words)
            if name in WRITES_ONLY_ITS_FIRST:
                assert set(keys) < set(expected), words
                assert keys == [words[2 if name in {"COPY", "BITOP"} else 1]], words
            else:
                assert keys == expected, words
            compared += 1
    assert compared > 120


STORING = [
    "SORT k BY nosort STORE d",
    "GEORADIUS k 1 1 1 m STORE d",
    "GEORADIUS k 1 1 1 m COUNT 1 STOREDIST d",
    "GEORADIUSBYMEMBER k store 1 m STORE d",
]


@pytest.mark.parametrize("command", STORING)
def test_commands_that_may_store_write_only_where_the_server_sees_it(command, every_redis_url):
    words = command.split()
    assert [*hints_of(words, 0)] == [(CHANGE, ["d"])]
    with redis.Redis.from_url(every_redis_url, decode_responses=True) as client:
        assert client.execute_command("COMMAND GETKEYS", *words) == ["k", "d"]


@pytest.mark.parametrize(
    ("method", "arguments", "keys"),
    [
        ("delex", ["a"], "a"),
        ("increx", ["a"], "a"),
        ("msetex", [{"a": 1, "b": 2}], "ab"),
        ("lmovem", ["a", "b"], "ab"),
        ("blmovem", ["a", "b", 1], "ab"),
        ("himport_set", ["a", "fields", [1]], "a"),
    ],
)
@pytest.mark.filterwarnings("ignore:Call to experimental")
def test_write_that_newer_redis_knows_leaves_its_changes(method, arguments, keys, ear):
    """No Redis here knows them all: the connection is lost, so each may have been done."""
    client = Redis(port=1, emit=ear.url, retry=None)
    if not hasattr(client, method):
        pytest.skip(f"this redis-py has no {method}")
    with pytest.raises(redis.ConnectionError):
        getattr(client, method)(*arguments)
    assert ear.heard() == {(CHANGE, key.encode()): 1 for key in keys}
