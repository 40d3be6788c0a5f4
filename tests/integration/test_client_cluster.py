"""The cluster clients: replies are redis-py's. Each call counts once, however many nodes it uses and however often it repeats."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import random
import time
from collections import Counter

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterPipeline as AsyncClusterPipeline
from redis.cluster import ClusterPipeline, LoadBalancingStrategy
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, ResponseError, WatchError
from stories.client import Both, Ear
from suite.pace import left_ms

import cacheupdater_client.asyncio
from cacheupdater_client import RedisCluster, wrap
from cacheupdater_client.asyncio import RedisCluster as AsyncRedisCluster
from cacheupdater_client.protocol.fence import floor_name
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

KEYS = [f"k:{number}" for number in range(12)]  # on every node, as long as no test has moved their slots


@pytest.fixture
def ear():
    ear = Ear("test_client_cluster")
    ear.heard()
    return ear


@pytest.fixture
def start(redis_cluster):
    """Where a client begins to look for the cluster."""
    return {"host": "127.0.0.1", "port": redis_cluster.nodes[0].port}


@pytest.fixture
def c(start, ear):
    with RedisCluster(**start, emit=ear.url) as client:
        yield client


@pytest.fixture
async def ac(start, ear):
    async with AsyncRedisCluster(**start, emit=ear.url) as client:
        yield client


@pytest.fixture(params=["sync", "asyncio"])
async def both(request, start, ear):
    if request.param == "sync":
        with RedisCluster(**start, emit=ear.url) as client:
            yield Both(client)
    else:
        async with AsyncRedisCluster(**start, emit=ear.url) as client:
            yield Both(client)


async def closed(both):
    """Ends all connections. The `close` of redis-py's own cluster leaves the sockets of its nodes to the collector."""
    await (both.disconnect_connection_pools() if isinstance(both.client, RedisCluster) else both.aclose())


def other_node(cluster, of):
    return next(node for node in cluster.primaries() if node is not cluster.owner(of))


# --- reads and writes ---------------------------------------------------------------------------------


async def test_read_leaves_a_touch_or_a_miss_wherever_its_key_lives(both, ear):
    for key in KEYS[:6]:
        await both.set(key, "v")
    assert ear.heard() == {(CHANGE, key.encode()): 1 for key in KEYS[:6]}
    for key in KEYS:
        await both.get(key)
        await both.hgetall(f"h:{key}")
    assert ear.heard() == {
        **{(TOUCH, key.encode()): 1 for key in KEYS[:6]},
        **{(MISS, key.encode()): 1 for key in KEYS[6:]},
        **{(MISS, f"h:{key}".encode()): 1 for key in KEYS},
    }


async def test_call_on_many_nodes_counts_each_key_once(both, ear):
    await both.mset_nonatomic(dict.fromkeys(KEYS[:6], 1))
    assert ear.heard() == {(CHANGE, key.encode()): 1 for key in KEYS[:6]}
    assert await both.mget_nonatomic(KEYS) == [b"1"] * 6 + [None] * 6
    assert ear.heard() == {(TOUCH if key in KEYS[:6] else MISS, key.encode()): 1 for key in KEYS}
    assert await both.exists(*KEYS) == 6
    assert ear.heard() == {(TOUCH if key in KEYS[:6] else MISS, key.encode()): 1 for key in KEYS}
    assert await both.delete(*KEYS) == 6
    assert await both.unlink(*KEYS) == 0
    assert ear.heard() == {(CHANGE, key.encode()): 2 for key in KEYS}


async def test_key_of_any_type_arrives_as_the_bytes_that_redis_saw(both, ear):
    for key in ["ключ", b"\xff\x00{\xfe}", 7, 1.5]:
        await both.set(key, "v")
        await both.get(key)
        name = both.client.get_encoder().encode(key)
        assert ear.heard() == {(CHANGE, name): 1, (TOUCH, name): 1}


@pytest.mark.parametrize("client", [RedisCluster, AsyncRedisCluster])
async def test_replies_are_decoded_if_asked_for(client, start, ear):
    both = Both(
        client.from_url(f"redis://{start['host']}:{start['port']}", emit=ear.url, decode_responses=True)
    )
    await both.set("é", "ü")
    assert await both.get("é") == "ü"
    assert await both.write_through("é", "w", ttl=10, since=await both.token("é"))
    await both.invalidate("é", "b")
    assert ear.heard() == {(CHANGE, "é".encode()): 3, (TOUCH, "é".encode()): 1, (CHANGE, b"b"): 1}
    await closed(both)


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
@pytest.mark.parametrize("client", [RedisCluster, AsyncRedisCluster])
async def test_reads_from_replicas_leave_hints(client, strategy, start, ear, redis_cluster):
    both = Both(client(**start, emit=ear.url, load_balancing_strategy=strategy))
    for key in KEYS * 4:
        await both.get(key)
    assert ear.heard() == {(MISS, key.encode()): 4 for key in KEYS}
    await closed(both)


def test_reads_from_replicas_leave_hints_when_asked_for_by_the_old_name(start, ear):
    with pytest.warns(DeprecationWarning, match="load_balancing_strategy"):
        client = RedisCluster(**start, emit=ear.url, read_from_replicas=True)
    with client:
        client.get("a")
        client.mget_nonatomic("a", "b")
    assert ear.heard() == {(MISS, b"a"): 2, (MISS, b"b"): 1}


async def test_call_to_chosen_nodes_counts_once_and_its_errors_leave_nothing(both, ear, redis_cluster):
    await both.ping(target_nodes="all")
    await both.lpush("l", "x")
    ear.heard()
    owner = both.client.get_node_from_key("l")
    assert await both.execute_command("LLEN", "l", target_nodes=owner) == 1
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await both.get("l")
    with pytest.raises(RedisClusterException, match="slot"):
        await both.mget("a", "b", "c")
    assert ear.heard() == {(TOUCH, b"l"): 1}


def test_clients_of_single_nodes_leave_none(c, ear):
    node = c.get_redis_connection(c.get_node_from_key("a"))
    node.set("a", 1)
    assert node.get("a") == b"1"
    assert type(node) is redis.Redis
    assert ear.heard() == {}


# --- pipelines ----------------------------------------------------------------------------------------


async def test_pipeline_leaves_hints_by_reply_after_execute(both, ear):
    await both.set("a", 1)
    ear.heard()
    pipe = both.pipeline()
    await pipe.get("a")
    await pipe.get("none")
    await pipe.set("w", 1)
    await pipe.delete("d")
    await pipe.unlink("u")
    await pipe.exists("a")
    await pipe.exists("none")
    assert ear.heard() == {}
    assert await pipe.execute() == [b"1", None, True, 0, 0, 1, 0]
    changes = {(CHANGE, key): 1 for key in (b"w", b"d", b"u")}
    assert ear.heard() == {(TOUCH, b"a"): 2, (MISS, b"none"): 2, **changes}
    await pipe.get("a")
    await pipe.reset()
    assert await pipe.execute() == []
    await pipe.get("none")
    assert await pipe.execute() == [None]
    assert ear.heard() == {(MISS, b"none"): 1}


async def test_pipeline_with_errors_as_replies_leaves_hints_for_the_rest(both, ear):
    await both.lpush("l", "x")
    ear.heard()
    pipe = both.pipeline()
    await pipe.get("l")
    await pipe.get("none")
    await pipe.incr("l")
    replies = await pipe.execute(raise_on_error=False)
    assert [type(reply) for reply in replies] == [ResponseError, type(None), ResponseError]
    assert ear.heard() == {(MISS, b"none"): 1}


async def test_pipeline_that_raises_leaves_changes_for_what_may_have_been_written(both, ear):
    await both.lpush("l", "x")
    ear.heard()
    pipe = both.pipeline()
    for _ in range(4):
        await pipe.set("forgotten", 1)
    await pipe.reset()
    await pipe.set("w", 1)
    await pipe.get("w")
    await pipe.incr("l")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await pipe.execute()
    assert ear.heard() == {(CHANGE, b"w"): 1, (CHANGE, b"l"): 1}


async def test_asyncio_pipeline_sees_what_it_splits_by_slot(ac, ear):
    pipe = ac.pipeline()
    pipe.mset_nonatomic(dict.fromkeys(KEYS, 1)).delete(*KEYS).exists(*KEYS)
    replies = await pipe.execute()
    assert len(replies) == 3 * len({key_slot(key.encode()) for key in KEYS})
    assert ear.heard() == {
        **{(CHANGE, key.encode()): 2 for key in KEYS},
        **{(MISS, key.encode()): 1 for key in KEYS},
    }
    with pytest.raises(NotImplementedError):
        ac.pipeline(transaction=True).mset_nonatomic({"a": 1})


async def test_transaction_reads_at_once_after_watch_and_a_lost_race_leaves_nothing(both, ear, start):
    other = redis.RedisCluster(**start)
    pipe = both.pipeline(transaction=True)
    await pipe.watch("{t}w")
    assert await pipe.get("{t}w") is None
    assert ear.heard() == {(MISS, b"{t}w"): 1}
    other.set("{t}w", 1)
    await pipe.multi()
    await pipe.set("{t}w", 2)
    with pytest.raises(WatchError):
        await pipe.execute()
    await pipe.set("{t}a", 1)
    await pipe.set("{s}a", 1)
    with pytest.raises(RedisClusterException, match="same slot"):
        await pipe.execute()
    assert ear.heard() == {}
    await pipe.set("{t}w", 2)
    await pipe.get("{t}none")
    await pipe.unlink("{t}u")
    assert (await pipe.execute())[1:] == [None, 0]  # redis-py's sync cluster leaves the first as b"OK"
    assert ear.heard() == {(CHANGE, b"{t}w"): 1, (MISS, b"{t}none"): 1, (CHANGE, b"{t}u"): 1}
    other.close()


async def test_discarded_commands_of_a_transaction_leave_nothing(both, ear):
    pipe = both.pipeline(transaction=True)
    await pipe.set("{t}a", 1)
    await pipe.set("{t}b", 1)
    await pipe.discard()
    await pipe.get("{t}c")
    assert await pipe.execute() == [None]
    assert ear.heard() == {(MISS, b"{t}c"): 1}


def test_transaction_function_leaves_hints(c, ear):
    def work(pipe):
        pipe.multi()
        pipe.incr("{t}w")

    assert c.transaction(work, "{t}w") == [1]
    assert ear.heard() == {(CHANGE, b"{t}w"): 1}


def test_pipelines_offer_no_fenced_calls(c, ac):
    for client in (c, ac):
        assert not any(hasattr(client.pipeline(), name) for name in ("invalidate", "token", "write_through"))


# --- moving slots and dying nodes ---------------------------------------------------------------------


async def read_all_ways(both):
    """Three reads of each key."""
    for key in KEYS:
        await both.get(key)
    await both.mget_nonatomic(KEYS)
    pipe = both.pipeline()
    for key in KEYS:
        await pipe.get(key)
    assert await pipe.execute() == [b"1"] * len(KEYS)


async def test_reads_of_a_slot_on_its_way_count_once(both, ear, redis_cluster):
    await both.mset_nonatomic(dict.fromkeys(KEYS, 1))
    await read_all_ways(both)
    ear.heard()
    once_each = {(TOUCH, key.encode()): 3 for key in KEYS}
    for key in KEYS[:3]:
        there_and_back = (other_node(redis_cluster, key), redis_cluster.owner(key))
        for to in there_and_back:
            redis_cluster.wait_until_settled()  # everybody has heard of the last move
            move = redis_cluster.migration(key_slot(key.encode()), to)
            move.begin()
            move.move_keys()
            await read_all_ways(both)  # ASK
            assert ear.heard() == once_each
            move.finish()
            await read_all_ways(both)  # MOVED
            assert ear.heard() == once_each


async def test_pipelines_repeated_for_a_moved_slot_count_once(both, ear, redis_cluster):
    await both.get("a")
    ear.heard()
    for to in (other_node(redis_cluster, "a"), redis_cluster.owner("a")):
        redis_cluster.wait_until_settled()  # everybody has heard of the last move
        redis_cluster.migrate_slot(key_slot(b"a"), to)
        pipe = both.pipeline()
        await pipe.get("a")
        await pipe.set("a", 1)
        await pipe.execute()
        assert set(ear.heard().values()) == {1}
        await both.delete("a")
        assert ear.heard() == {(CHANGE, b"a"): 1}


class Loop:
    """Reads until it is stopped; what was read, and what was raised."""

    def __init__(self, client):
        self.read = Counter()
        self.raised = Counter()
        self._both = Both(client)
        self._stop = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self):
        while not self._stop.is_set():
            for key in KEYS:
                try:
                    if inspect.iscoroutinefunction(self._both.client.execute_command):
                        await self._both.get(key)
                    else:
                        await asyncio.to_thread(self._both.client.get, key)
                except (redis.RedisError, RedisClusterException) as e:
                    self.raised[type(e)] += 1
                else:
                    self.read[key.encode()] += 1
            await asyncio.sleep(0)

    async def until(self, more):
        """So many more rounds have succeeded."""
        goal = {key.encode(): self.read[key.encode()] + more for key in KEYS}
        while any(self.read[key] < count for key, count in goal.items()):
            assert not self._task.done(), self._task
            await asyncio.sleep(0.01)

    async def stop(self):
        self._stop.set()
        await self._task


@pytest.mark.parametrize("kind", ["sync", pytest.param("asyncio", marks=pytest.mark.prove)])
async def test_hints_go_on_when_a_primary_dies_while_it_is_read(kind, start, ear, redis_cluster):
    ours, plain = (
        (RedisCluster(**start, emit=ear.url), redis.RedisCluster(**start))
        if kind == "sync"
        else (AsyncRedisCluster(**start, emit=ear.url), redis.asyncio.RedisCluster(**start))
    )
    loop, beside = Loop(ours), Loop(plain)
    await loop.until(20)
    await beside.until(20)
    await asyncio.to_thread(redis_cluster.owner(KEYS[0]).kill)
    await asyncio.to_thread(redis_cluster.wait_until_settled)
    await loop.until(20)
    await beside.until(20)
    await loop.stop()
    await beside.stop()
    assert ear.heard() == {(MISS, key): count for key, count in loop.read.items()}
    assert all(issubclass(each, (redis.RedisError, RedisClusterException)) for each in loop.raised)
    for client in (ours, plain):
        await Both(client).aclose() if kind == "asyncio" else client.close()


async def test_write_to_a_dead_cluster_leaves_a_change_and_redis_pys_error(both, ear, redis_cluster):
    await both.get("a")
    ear.heard()
    for node in redis_cluster.nodes:
        node.kill()
    with pytest.raises((redis.RedisError, RedisClusterException)):
        await both.set("a", 1)
    with pytest.raises((redis.RedisError, RedisClusterException)):
        await both.get("b")
    assert ear.heard() == {(CHANGE, b"a"): 1}


# --- fenced calls -------------------------------------------------------------------------------------


async def test_invalidate_removes_and_raises_the_floor_on_every_node(both, ear):
    keys = [f"p:{number}" for number in range(250)]
    await both.mset_nonatomic(dict.fromkeys(keys, 1))
    ear.heard()
    await both.invalidate(*keys)
    assert await both.mget_nonatomic(keys) == [None] * 250
    floors = await both.mget_nonatomic([floor_name(key.encode()) for key in keys])
    assert {len(floor) for floor in floors} == {19}
    assert {key for kind, key in ear.heard() if kind == CHANGE} == {key.encode() for key in keys}


async def test_fenced_calls_survive_a_flush_of_scripts_on_every_node(both):
    for _ in range(2):
        await both.invalidate(*KEYS)
        await both.script_flush()
        for key in KEYS:
            assert await both.write_through(key, "v", ttl=10, since=await both.token(key))
        await both.script_flush()
    assert await both.mget_nonatomic(KEYS) == [b"v"] * len(KEYS)


async def test_write_through_sets_unless_something_newer_has_happened_on_every_node(both, ear):
    for key in KEYS:
        began = time.monotonic()
        since, earlier = await both.token(key), await both.token()
        assert await both.write_through(key, "v", ttl=900, since=since) is True
        left = await both.pttl(key)
        assert left_ms(900_000, began) <= left <= 900_000
        assert await both.write_through(key, "old", ttl=900, since=earlier) is False
        assert await both.get(key) is None
        since = await both.token(key)
        await both.invalidate(key)
        assert await both.write_through(key, "old", ttl=900, since=since) is False
    assert ear.heard() == {
        **{(CHANGE, key.encode()): 4 for key in KEYS},
        **{(MISS, key.encode()): 1 for key in KEYS},
    }


async def test_token_asks_the_owners_of_its_keys_or_all_primaries(both, redis_cluster):
    def asked(command):
        said = {node: redis_cluster.tell(node, "INFO", "commandstats") for node in redis_cluster.nodes}
        for node in redis_cluster.nodes:
            redis_cluster.tell(node, "CONFIG", "RESETSTAT")
        return {node for node, stats in said.items() if f"cmdstat_{command}:".encode() in stats}

    await both.get("a")
    asked("eval")
    assert len(str(await both.token("a"))) == 19
    assert asked("eval") == {redis_cluster.owner("a")}
    await both.token(*KEYS)
    assert asked("eval") == {redis_cluster.owner(key) for key in KEYS}
    token = await both.token()
    assert asked("time") >= set(redis_cluster.primaries())
    assert token < await both.token("a")


async def test_fenced_calls_find_a_slot_that_has_moved(both, redis_cluster):
    await both.invalidate("a")
    for to in (other_node(redis_cluster, "a"), redis_cluster.owner("a")):
        redis_cluster.wait_until_settled()  # everybody has heard of the last move
        redis_cluster.migrate_slot(key_slot(b"a"), to)
        since = await both.token("a")
        assert await both.write_through("a", "v", ttl=10, since=since)
        await both.invalidate("a", "b")
        assert await both.mget_nonatomic("a", "b") == [None, None]
        assert redis_cluster.tell(to, "GET", floor_name(b"a")) > str(since).encode()


async def test_a_dead_node_keeps_no_other_nodes_keys_from_being_invalidated(both, ear, redis_cluster):
    await both.mset_nonatomic(dict.fromkeys(KEYS, 1))
    dead = redis_cluster.owner(KEYS[0])
    alive = [key for key in KEYS if redis_cluster.owner(key) is not dead]
    for node in (*redis_cluster.replicas(dead), dead):  # nobody takes over
        node.kill()
    ear.heard()
    with pytest.raises((redis.RedisError, RedisClusterException)):
        await both.invalidate(*KEYS)
    assert ear.heard() == {(CHANGE, key.encode()): 1 for key in KEYS}
    for key in alive:
        assert redis_cluster.tell(redis_cluster.owner(key), "GET", key) is None


async def test_invalidate_of_nothing_is_nothing(both, ear):
    await both.invalidate()
    assert ear.heard() == {}


# --- classes ------------------------------------------------------------------------------------------


def users(plain):
    class Mine(plain):
        """A user's class that sees every command."""

        seen = ()

        def execute_command(self, *args, **options):
            self.seen = (*self.seen, args[0])
            return super().execute_command(*args, **options)

    return Mine


@pytest.mark.parametrize(
    ("plain", "ours"),
    [(redis.RedisCluster, RedisCluster), (redis.asyncio.RedisCluster, AsyncRedisCluster)],
)
async def test_wrapped_client_stays_what_it_was_and_leaves_hints(plain, ours, start, ear):
    Mine = users(plain)  # noqa: N806  a class
    for cls in (plain, Mine):
        client = cls(**start)
        assert wrap(client, emit=ear.url) is client
        assert isinstance(client, cls)
        assert (type(client) is ours) == (cls is plain)
        both = Both(client)
        await both.get("a")
        await both.mget_nonatomic("a", "b")
        assert ear.heard() == {(MISS, b"a"): 2, (MISS, b"b"): 1}
        assert cls is plain or client.seen[-1] == "GET"
        with pytest.raises(TypeError, match="client"):
            wrap(client.pipeline())
        await both.aclose() if ours is AsyncRedisCluster else client.close()


async def test_subclass_with_its_own_execute_command_sees_every_read(start, ear):
    with users(RedisCluster)(**start, emit=ear.url) as client:
        client.get("a")
        assert client.seen == ("COMMAND", "GET")  # redis-py's first look where keys stand
    assert ear.heard() == {(MISS, b"a"): 1}


def test_classes_are_found_by_name(c, ac):
    for cls in (type(c), type(ac), type(c.pipeline()), type(ac.pipeline())):
        assert pickle.loads(pickle.dumps(cls)) is cls


def test_clusters_offer_what_redis_pys_offer_and_the_fenced_calls():
    for ours, plain in ((RedisCluster, redis.RedisCluster), (AsyncRedisCluster, redis.asyncio.RedisCluster)):
        added = {name for name in set(dir(ours)) - set(dir(plain)) if not name.startswith("_")}
        assert added == {"emit_to", "invalidate", "token", "write_through"}


def takes(function):
    """What it can be called with: named parameters, and whether any others."""
    parameters = inspect.signature(function).parameters.values()
    kinds = {each.kind for each in parameters}
    names = {each.name for each in parameters if each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}}
    return names, inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        (cacheupdater_client.Redis, redis.Redis),
        (cacheupdater_client.asyncio.Redis, redis.asyncio.Redis),
        (RedisCluster, redis.RedisCluster),
        (AsyncRedisCluster, redis.asyncio.RedisCluster),
        (cacheupdater_client.Sentinel, redis.sentinel.Sentinel),
        (cacheupdater_client.asyncio.Sentinel, redis.asyncio.Sentinel),
        (RedisCluster._pipes, ClusterPipeline),
        (AsyncRedisCluster._pipes, AsyncClusterPipeline),
    ],
)
def test_overridden_methods_take_what_redis_pys_take_and_wait_where_they_wait(ours, plain):
    compared = 0
    for name, theirs in inspect.getmembers(plain, callable):
        mine = getattr(ours, name)
        is_ours = getattr(mine, "__func__", mine) is not getattr(theirs, "__func__", theirs)
        if not is_ours or not inspect.isroutine(mine) or (name.startswith("__") and name != "__init__"):
            continue
        names, anything, anything_named = takes(theirs)
        our_names, ours_anything, ours_anything_named = takes(mine)
        assert names <= our_names or ours_anything, name
        assert ours_anything or not anything, name
        assert ours_anything_named or not anything_named, name
        assert inspect.iscoroutinefunction(mine) or not inspect.iscoroutinefunction(theirs), name
        compared += 1
    assert compared >= 2


def test_cluster_that_emits_nothing_is_plain(start, ear, monkeypatch):
    monkeypatch.setenv("CACHEUPDATER_DISABLED", "1")
    with RedisCluster(**start, emit=ear.url) as client:
        client.set("a", 1)
        assert client.get("a") == b"1"
        client.invalidate("a")
        assert client.pipeline().get("a").execute() == [None]
    assert ear.heard() == {}


# --- random programs ----------------------------------------------------------------------------------

NAMES = ["a", "b", b"c", "{t}d", "{t}e", "é"]
READS = {  # and whether a reply shows that the key is absent
    "get": lambda reply: reply is None, "hgetall": lambda reply: len(reply) == 0, "strlen": lambda reply: reply == 0,
    "exists": lambda reply: reply == 0, "smembers": lambda reply: len(reply) == 0, "hget": None, "lrange": None, "sismember": None,
}  # fmt: skip
WRITES = ["set", "hset", "lpush", "sadd", "incr", "append", "delete", "unlink", "getdel"]
CLEARS, SETS = {"delete", "unlink"}, {"set", "hset"}
REST = {"hget": ["f"], "lrange": [0, -1], "sismember": ["m"], "set": [1], "hset": ["f", "v"], "lpush": ["x"], "sadd": ["m"], "append": ["x"]}  # fmt: skip


def random_command(chance, names):
    name = chance.choice([*READS, *WRITES])
    return (name, chance.choice(names), *REST.get(name, []))


def random_program(seed):
    chance = random.Random(seed)

    def step():
        kind = chance.choices(
            ["command", "mget_nonatomic", "mset_nonatomic", "pipe", "transaction"], [8, 1, 1, 2, 1]
        )[0]
        if kind == "command":
            return random_command(chance, NAMES)
        if kind == "mget_nonatomic":
            return (kind, chance.sample(NAMES, 4))
        if kind == "mset_nonatomic":
            return (kind, dict.fromkeys(chance.sample(NAMES, 3), 5))
        names = NAMES if kind == "pipe" else ["{t}d", "{t}e"]
        return (kind, [random_command(chance, names) for _ in range(chance.randint(1, 6))])

    return [step() for _ in range(50)]


async def play(both, program):
    """The reply to each step; an error as its type."""
    replies = []
    for name, *args in program:
        try:
            if name in {"pipe", "transaction"}:
                pipe = both.pipeline(transaction=name == "transaction")
                for command, *words in args[0]:
                    await getattr(pipe, command)(*words)
                replies.append(await pipe.execute(raise_on_error=False))
            else:
                replies.append(await getattr(both, name)(*args))
        except (
            redis.RedisError,
            TypeError,
        ) as e:  # redis-py's asyncio transactions fail with TypeError at some replies
            replies.append(e)
    return replies


def encoded(key):
    return key if isinstance(key, bytes) else key.encode()


def hint_of(name, key, reply):
    if isinstance(reply, Exception):
        return []
    if name in WRITES:
        return [(CHANGE, encoded(key))]
    absent = READS[name]
    return [(MISS if absent and absent(reply) else TOUCH, encoded(key))]


def is_set_after(at, commands, replies):
    """Whether a later command of a pipeline sets the key that this one deletes."""
    key = encoded(commands[at][1])
    later = zip(commands[at + 1 :], replies[at + 1 :], strict=True)
    return any(
        name in SETS and encoded(other) == key and not isinstance(each, Exception)
        for (name, other, *_), each in later
    )


def hints_of_all(program, replies):
    """The model: what these replies to this program should have left."""
    hints = Counter()
    for (name, *args), reply in zip(program, replies, strict=True):
        if name == "mget_nonatomic" and not isinstance(reply, Exception):
            hints.update(
                (TOUCH if value is not None else MISS, encoded(key))
                for key, value in zip(args[0], reply, strict=True)
            )
        elif name == "mset_nonatomic":
            hints.update((CHANGE, encoded(key)) for key in args[0])
        elif name in {"pipe", "transaction"} and isinstance(reply, Exception):  # may have been done
            hints.update((CHANGE, encoded(key)) for command, key, *_ in args[0] if command in WRITES)
        elif name in {"pipe", "transaction"}:
            for at, ((command, key, *_), each) in enumerate(zip(args[0], reply, strict=True)):
                if not (command in CLEARS and is_set_after(at, args[0], reply)):
                    hints.update(hint_of(command, key, each))
        elif name != "mget_nonatomic":
            hints.update(hint_of(name, args[0], reply))
    return hints


def comparable(replies):
    return [
        comparable(each) if isinstance(each, list) else type(each) if isinstance(each, Exception) else each
        for each in replies
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["sync", "asyncio"])
async def test_random_program_gets_redis_pys_replies_and_leaves_the_models_hints(
    kind, seed, start, ear, redis_cluster
):
    program = random_program(seed)
    plain, ours = (
        (redis.RedisCluster(**start), RedisCluster(**start, emit=ear.url))
        if kind == "sync"
        else (redis.asyncio.RedisCluster(**start), AsyncRedisCluster(**start, emit=ear.url))
    )
    if kind == "asyncio":  # redis-py's asyncio transactions need it
        await plain.initialize()
        await ours.initialize()
    expected = await play(Both(plain), program)
    redis_cluster.flush()
    assert comparable(await play(Both(ours), program)) == comparable(expected)
    assert ear.heard() == hints_of_all(program, expected)
    for client in (plain, ours):
        await Both(client).aclose() if kind == "asyncio" else client.close()
