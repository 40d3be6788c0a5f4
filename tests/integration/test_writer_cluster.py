"""The writer over a cluster that is reshaped, forgetful or half dead: which keys are affected, and which are not."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot
from stories.cluster import TTL_MS, entries, floor_of, keys_of, one_of_each, results, write
from suite.pace import PATIENCE_S, Metronome

from cacheupdater.adapters.writer_redis import ClusterWriter, slots, writer_for
from cacheupdater.core.answers import (
    DUPLICATE,
    FOREIGN,
    TOO_OLD,
    UNCHANGED,
    UNSOUND,
    WRITTEN,
    Answer,
    Result,
)
from cacheupdater.errors import Forbidden, Misconfigured, Unavailable
from cacheupdater.local.redis_server import RedisServer, version
from cacheupdater.ports import Entry
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.lease import Grace

CHANGES = 50
BOUND_S = 1.6  # what one call may take, whatever happens: looking for the nodes, and one exchange


@pytest.fixture
async def writer(patient, monkeypatch, redis_cluster):
    for name in ("ASIDE_S", "LEARN_S"):
        monkeypatch.setattr(slots, name, PATIENCE_S)
    made = ClusterWriter(redis_cluster.url)
    yield made
    await made.close()


@pytest.fixture
async def prompt_writer(redis_cluster):
    """As the service has it."""
    made = ClusterWriter(redis_cluster.url)
    yield made
    await made.close()


STILL_S = 0.2  # a machine that stands still for so long may hold up a node for the half second of a call


async def until_written(writer, keys, value=b"v"):
    """Refreshes until each has landed; everything that was said on the way."""
    deadline, seen = time.monotonic() + PATIENCE_S, set()
    while True:
        try:
            said = await results(writer, keys, value)
        except Unavailable as e:
            said = [str(e)]
        seen.update(said)
        if set(said) <= {"written", "unchanged"}:
            return seen
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.02)


# --- the fence, on every node ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(3))
async def test_fence_holds_on_every_node(redis_cluster, writer, place):
    node = redis_cluster.primaries()[place]
    key, neighbour = keys_of(redis_cluster, node, 2)

    async def write(token, value):
        return await writer.write(token, [Entry(key, value, TTL_MS)])

    def stored():
        return redis_cluster.tell(node, "GET", key)

    async def token():
        return await writer.token([key])

    older, first = await token(), await token()
    assert await write(first, b"a") == [WRITTEN]
    assert await write(first, b"b") == [DUPLICATE]
    redis_cluster.tell(node, "PEXPIRE", key, TTL_MS // 2)
    second = await token()
    assert await write(second, b"a") == [UNCHANGED]
    assert redis_cluster.tell(node, "PTTL", key) > TTL_MS // 2
    assert floor_of(redis_cluster, node, key) == b"%d" % second
    [refused] = await write(older, b"old")
    assert refused.result is Result.REFUSED
    assert refused.wait == pytest.approx((second - older) / 1e9, abs=1e-5)

    before = await token()
    await writer.invalidate([key])
    assert [each.result for each in await write(before, b"old")] == [Result.REFUSED]
    assert stored() is None
    assert await write(await token(), b"new") == [WRITTEN]
    assert await write(await token(), None) == [WRITTEN]
    assert (stored(), floor_of(redis_cluster, node, key) is None) == (None, False)

    seconds, micros = map(int, redis_cluster.tell(node, "TIME"))
    ahead = fence.token_of(seconds + 10_000, micros)
    redis_cluster.tell(node, "SET", fence.floor_name(key), ahead)  # the clock has stepped back since
    assert await write(await token(), b"after the step") == [WRITTEN]
    redis_cluster.tell(node, "SET", fence.floor_name(key), ahead)
    await writer.invalidate([key])
    assert int(floor_of(redis_cluster, node, key)) < ahead

    redis_cluster.tell(node, "RPUSH", neighbour, b"item")
    both = await writer.write(await writer.token([neighbour, key]), entries([neighbour, key]))
    assert both == [FOREIGN, WRITTEN]


@pytest.mark.parametrize("place", range(3))
async def test_tokens_too_old_or_ahead_are_refused_by_the_node_itself(redis_cluster, writer, place):
    node = redis_cluster.primaries()[place]
    [key] = keys_of(redis_cluster, node)
    for seconds in (-31, 5):
        token = await writer.token([key])
        issued = writer._issued[token]
        [(member, real)] = issued.tokens.items()
        skewed = real + seconds * 10**9
        member._issued[skewed] = member._issued[real]
        writer._issued[token] = issued._replace(tokens={member: skewed})
        assert await writer.write(token, entries([key])) == [TOO_OLD]
    assert redis_cluster.tell(node, "GET", key) is None


@pytest.mark.parametrize("place", range(3))
async def test_write_through_counts_on_every_node(redis_cluster, writer, place):
    node = redis_cluster.primaries()[place]
    [key] = keys_of(redis_cluster, node)
    await writer.invalidate([key])

    def write_through(value, since):
        args = fence.write_through_args(key, value, TTL_MS, since)
        return redis_cluster.tell(node, "EVAL", fence.INVALIDATE.text, *args)

    since, late = await writer.token([key]), await writer.token([key])
    assert write_through(b"a", since) == [fence.SET]
    floor = int(floor_of(redis_cluster, node, key))
    assert await writer.write(late, entries([key], b"old")) == [
        Answer(Result.REFUSED, wait=pytest.approx((floor - late) / 1e9, abs=1e-5))
    ]
    assert write_through(b"b", since) == [fence.REMOVED]
    assert redis_cluster.tell(node, "GET", key) is None


@pytest.mark.parametrize("place", range(3))
async def test_a_node_without_memory_is_unavailable_and_the_others_are_not(redis_cluster, writer, place):
    homes = one_of_each(redis_cluster)
    node = redis_cluster.primaries()[place]
    await write(writer, [*homes.values()])
    floor = floor_of(redis_cluster, node, homes[node])
    redis_cluster.tell(node, "CONFIG", "SET", "maxmemory", 1)
    try:
        said = dict(zip(homes, await write(writer, [*homes.values()], b"w"), strict=True))
    finally:
        redis_cluster.tell(node, "CONFIG", "SET", "maxmemory", 0)
    assert (said[node].result, "OOM" in said[node].why) == (Result.UNAVAILABLE, True)
    assert [said[each] for each in homes if each is not node] == [WRITTEN, WRITTEN]
    assert redis_cluster.tell(node, "GET", homes[node]) == b"v"
    assert floor_of(redis_cluster, node, homes[node]) == floor


async def test_odd_keys_and_their_floors_are_in_the_right_slot(redis_cluster, writer):
    odd = [b"\x00\xff\r\n", b"{a}b", b"a{}", b"{{", b"}{", b"{}x{y}", b"{\xff}", b" ", b"a{b}c{d}"]
    rng = random.Random(3)
    odd += [rng.randbytes(rng.randrange(1, 40)) for _ in range(200)]
    assert await write(writer, odd) == [WRITTEN] * len(odd)
    for key in odd:
        owner = redis_cluster.owner(key)
        assert redis_cluster.tell(owner, "GET", key) == b"v"
        assert floor_of(redis_cluster, owner, key) is not None


# --- reshaping -------------------------------------------------------------------------------------------


async def test_keys_of_a_slot_on_its_way_land_on_either_node(redis_cluster, writer):
    """There and back again: TRYAGAIN and ASK come by, a later token always wins."""
    moved, stayed, halved, new = (b"{on its way}%d" % i for i in range(4))
    slot = key_slot(moved)
    for turn in range(2):
        there = next(node for node in redis_cluster.primaries() if node is not redis_cluster.owner(slot))
        move = redis_cluster.migration(slot, there)
        await until_written(writer, [moved, stayed, halved], b"before %d" % turn)
        move.begin()
        move.move_keys([moved, fence.floor_name(moved), halved])
        seen = {key: await results(writer, [key]) for key in (moved, stayed, halved, new)}
        assert seen[moved] == ["too_old"]  # ASK: the token was the other node's
        assert seen[stayed] == ["written"]
        # its floor is not where it is: Redis 6 says ASK and then TRYAGAIN, Redis 7 TRYAGAIN at once
        assert {*seen[halved], *await results(writer, [halved])} <= {"too_old", "unavailable"}
        assert seen[new] == ["too_old"]

        assert await write(writer, [moved], b"ahead %d" % turn) == [WRITTEN]
        [answer] = await write(writer, [new])
        assert (answer.result, "TRYAGAIN" in answer.why) == (Result.UNAVAILABLE, True)
        late = await writer.token([moved])
        await writer.invalidate([moved, stayed])
        [answer] = await writer.invalidate([halved])
        assert (answer.result, "TRYAGAIN" in answer.why) == (Result.UNAVAILABLE, True)
        # Redis runs no script on keys of such a slot that are not there; so these wait until it has arrived
        assert (await writer.write(late, entries([moved])))[0].result is Result.UNAVAILABLE

        move.move_keys()
        move.finish()
        keys = [moved, stayed, halved, new]
        await until_written(writer, keys, b"after %d" % turn)
        assert [redis_cluster.tell(there, "GET", key) for key in keys] == [b"after %d" % turn] * 4
        redis_cluster.wait_until_settled()
        redis_cluster.tell(there, "UNLINK", new, fence.floor_name(new))


async def test_a_key_whose_slot_has_moved_is_too_old_once_and_lands_the_next_time(redis_cluster, writer):
    [key, *neighbours] = keys_of(redis_cluster, redis_cluster.primaries()[0], 20)
    await write(writer, [key])
    to = redis_cluster.primaries()[1]
    token = await writer.token([key, *neighbours])
    redis_cluster.migrate_slot(key_slot(key), to)

    said = await writer.write(token, entries([key, *neighbours], b"w"))
    assert [said[0], *dict.fromkeys(said[1:])] == [TOO_OLD, WRITTEN]
    assert await write(writer, [key], b"w") == [WRITTEN]
    assert redis_cluster.tell(to, "GET", key) == b"w"


async def test_a_token_is_void_for_a_key_that_has_moved_to_a_node_that_gave_one_too(redis_cluster, writer):
    """The clocks of the two nodes may differ: what the floor says of one is nothing to the other's token."""
    first, second = redis_cluster.primaries()[:2]
    [here, other], [there] = keys_of(redis_cluster, first, 2), keys_of(redis_cluster, second)
    await write(writer, [here, there])
    token = await writer.token([here, there])
    redis_cluster.migrate_slot(key_slot(here), second)
    redis_cluster.migrate_slot(key_slot(other), second)
    assert await results(writer, [other]) == ["too_old"]  # so the writer looks who has what
    assert await results(writer, [other]) == ["written"]
    assert await writer.write(token, entries([here, there], b"w")) == [TOO_OLD, WRITTEN]


async def test_tokens_are_void_after_a_replica_was_promoted_in_order(redis_cluster, writer):
    homes = one_of_each(redis_cluster)
    node = redis_cluster.primaries()[0]
    await write(writer, [*homes.values()])
    token = await writer.token([*homes.values()])
    redis_cluster.promote(redis_cluster.replicas(node)[0])

    said = dict(zip(homes, await writer.write(token, entries(homes.values(), b"w")), strict=True))
    assert said.pop(node) == TOO_OLD
    assert [*said.values()] == [WRITTEN, WRITTEN]
    await until_written(writer, [homes[node]], b"w")
    assert await writer.write(token, entries([homes[node]], b"old")) == [TOO_OLD]


class Shop:
    """Rows that an application changes, updaters that refresh them, a cluster that is reshaped; for some seconds."""

    def __init__(self, cluster, seconds):
        self.cluster = cluster
        self.rng = random.Random(11)
        self.ends = time.monotonic() + seconds
        self.rows = {b"{%d}row:%d" % (i % 5, i): 0 for i in range(60)}
        self.said = set()
        self.promoted = []
        self.changes = 0

    @property
    def is_open(self):
        """For its seconds; longer where the machine was too busy for so many changes."""
        return time.monotonic() < self.ends or self.changes < CHANGES

    async def refresh(self, writer):
        while self.is_open:
            keys = self.rng.sample([*self.rows], 12)
            with contextlib.suppress(Unavailable):
                token = await writer.token(keys)
                loaded = {key: b"%d" % self.rows[key] for key in keys}
                await asyncio.sleep(self.rng.random() / 50)
                answers = await writer.write(token, [Entry(key, loaded[key], TTL_MS) for key in keys])
                self.said.update(answer.result.value for answer in answers)
            await asyncio.sleep(0)

    async def change(self, writer):
        while self.is_open:
            key = self.rng.choice([*self.rows])
            self.rows[key] += 1
            await invalidated(writer, key)
            self.changes += 1
            await asyncio.sleep(self.rng.random() / 100)

    async def reshape(self):
        while self.is_open:
            slot = key_slot(self.rng.choice([*self.rows]))
            owner = self.cluster.owner(slot)
            if self.rng.random() < 0.2 and owner not in self.promoted:
                [replica] = self.cluster.replicas(owner)
                await asyncio.to_thread(self.cluster.promote, replica)
                self.promoted += [owner, replica]  # nodes do not vote for them again so soon
                continue
            others = [node for node in self.cluster.primaries() if node is not owner]
            move = self.cluster.migration(slot, self.rng.choice(others))
            for step in (move.begin, move.move_keys, move.finish):
                await asyncio.to_thread(step)
                await asyncio.sleep(self.rng.random() / 20)
            await asyncio.to_thread(self.cluster.wait_until_settled)

    def stale(self):
        owners = self.cluster.owners(self.rows)
        found = {
            key: self.cluster.tell(owner, "GET", key) for key, owner in zip(self.rows, owners, strict=True)
        }
        return {key: value for key, value in found.items() if value not in {None, b"%d" % self.rows[key]}}


async def invalidated(writer, key):
    """As the pipeline does it: again, until it is acknowledged."""
    while True:
        with contextlib.suppress(Unavailable):
            if await writer.invalidate([key]) == [WRITTEN]:
                return
        await asyncio.sleep(0.01)


async def test_nothing_old_stays_while_slots_and_primaries_move(redis_cluster):
    shop = Shop(redis_cluster, seconds=4.0)
    writers = [ClusterWriter(redis_cluster.url) for _ in range(4)]
    await asyncio.gather(*map(shop.refresh, writers[:3]), shop.change(writers[3]), shop.reshape())
    assert shop.stale() == {}
    assert {"written", "too_old", "refused"} <= shop.said
    for each in writers:
        await each.close()


# --- trouble ---------------------------------------------------------------------------------------------


async def test_scripts_are_loaded_again_where_one_node_forgot_them(redis_cluster, writer):
    keys = [b"k:%d" % i for i in range(300)]
    await write(writer, keys)
    await writer.invalidate(keys)
    forgetful = redis_cluster.primaries()[1]
    redis_cluster.tell(forgetful, "SCRIPT", "FLUSH")
    assert await write(writer, keys) == [WRITTEN] * 300
    redis_cluster.tell(forgetful, "SCRIPT", "FLUSH")
    await writer.invalidate(keys)
    assert redis_cluster.tell(forgetful, "DBSIZE") == len(keys_on(redis_cluster, forgetful, keys))


def keys_on(cluster, node, keys):
    return [key for key, owner in zip(keys, cluster.owners(keys), strict=True) if owner is node]


async def test_death_of_a_primary_stops_only_its_keys_and_they_land_on_its_successor(redis_cluster, writer):
    homes = one_of_each(redis_cluster)
    dead = redis_cluster.primaries()[2]
    await write(writer, [*homes.values()])
    token = await writer.token([*homes.values()])
    [replica] = redis_cluster.replicas(dead)
    redis_cluster.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "yes")  # for a while
    dead.kill()

    said = dict(zip(homes, await writer.write(token, entries(homes.values(), b"w")), strict=True))
    assert said.pop(dead).result in {Result.UNAVAILABLE, Result.TOO_OLD}
    assert [*said.values()] == [WRITTEN, WRITTEN]
    said = dict(zip(homes, await write(writer, [*homes.values()], b"x"), strict=True))
    assert said.pop(dead).result is Result.UNAVAILABLE
    assert [*said.values()] == [WRITTEN, WRITTEN]
    said = dict(zip(homes, await writer.invalidate([*homes.values()]), strict=True))
    assert str(dead.port) in said.pop(dead).why
    assert [*said.values()] == [WRITTEN, WRITTEN]

    with pytest.raises(Unavailable):  # nobody has its slots while no replica may take them
        await writer.token([homes[dead]])
    redis_cluster.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "no")
    await until_written(writer, [homes[dead]], b"y")
    assert redis_cluster.tell(redis_cluster.owner(homes[dead]), "GET", homes[dead]) == b"y"
    assert await writer.write(token, entries([homes[dead]], b"old")) == [TOO_OLD]
    assert await writer.invalidate([*homes.values()]) == [WRITTEN] * 3


@pytest.fixture
def lonely(redis_cluster):
    """A primary whose replica leaves it in its place, whatever happens; for one test."""
    primary = redis_cluster.primaries()[0]
    [replica] = redis_cluster.replicas(primary)
    redis_cluster.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
    yield primary
    redis_cluster.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "no")


async def test_frozen_node_holds_nobody_for_long_and_the_others_not_at_all(
    redis_cluster, prompt_writer, lonely
):
    writer, frozen = prompt_writer, lonely
    homes = one_of_each(redis_cluster)
    keys = [*homes.values()]
    await until_written(writer, keys)
    with Metronome() as control:
        token, others = await writer.token(keys), []
        frozen.pause()
        began = time.monotonic()
        said = dict(zip(homes, await writer.write(token, entries(keys, b"w")), strict=True))
        took = [time.monotonic() - began]
        assert said.pop(frozen).result is Result.UNAVAILABLE
        others.append([*said.values()])

        for i in range(30):
            began = time.monotonic()
            said = dict(zip(homes, await write(writer, keys, b"%d" % i), strict=True))
            took.append(time.monotonic() - began)
            others.append([answer for node, answer in said.items() if node is not frozen])
    assert all(each == [WRITTEN, WRITTEN] for each in others) or control.latest > STILL_S
    assert max(took) < BOUND_S + 4 * control.latest
    assert sorted(took)[len(took) // 2] < 0.1 + 4 * control.latest  # most go by without a wait
    frozen.resume()
    await until_written(writer, keys, b"again")


def test_the_owner_of_a_slot_is_known_though_the_node_that_is_asked_first_has_not_heard_of_it(
    redis_cluster, monkeypatch
):
    """A test asked for the successor of a dead primary, and was told the dead one."""
    slot = key_slot(b"a")
    old, stale = redis_cluster.owner(slot), redis_cluster.view()
    new = next(node for node in redis_cluster.primaries() if node is not old)
    redis_cluster.migrate_slot(slot, new)
    view = redis_cluster.view
    unaware = redis_cluster.nodes[0]
    monkeypatch.setattr(
        redis_cluster, "view", lambda asked=unaware: stale if asked is unaware else view(asked)
    )
    assert redis_cluster.owner(slot) is new


async def test_one_seed_that_answers_is_enough(redis_cluster, patient):
    places = [f"127.0.0.1:{port}" for port in (1, 2, redis_cluster.primaries()[0].port)]
    writer = writer_for("redis+cluster://" + ",".join(places))
    keys = [*one_of_each(redis_cluster).values()]
    assert await write(writer, keys) == [WRITTEN] * 3
    await writer.close()


@pytest.fixture
def nameless(every_redis_server):
    """A cluster of one node, which says "?" where it shall tell its name."""
    if int(version(every_redis_server.executable).split(".")[0]) < 7:
        pytest.skip("this Redis always tells its address")
    options = ["--cluster-enabled", "yes", "--cluster-preferred-endpoint-type", "hostname"]
    with RedisServer(every_redis_server.executable, options=options) as node:
        with redis.Redis.from_url(node.url) as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                time.sleep(0.01)
        yield node


async def test_a_node_without_a_name_is_found_where_it_was_asked(patient, nameless):
    writer = writer_for(f"redis+cluster://127.0.0.1:{nameless.port}")
    assert await results(writer, [b"k"]) == ["written"]
    await writer.close()


async def test_url_that_wants_text_for_others_does_not_matter(redis_cluster, patient):
    writer = writer_for(f"{redis_cluster.url}?decode_responses=true")
    assert await results(writer, [b"k"]) == ["written"]
    await writer.invalidate([b"k"])
    await writer.close()


async def test_tokens_share_what_is_known_while_nothing_changes(writer):
    """A cluster in trouble is asked four times a second, for as long as it lasts."""
    for _ in range(5):
        writer._slots.doubt()
        writer._slots._again = 0.0
        await writer.token()
    assert len(writer._issued) == 5
    assert len({id(each.view.owners) for each in writer._issued.values()}) == 1


async def test_tokens_are_forgotten_when_every_fence_would_refuse_them(writer, monkeypatch):
    loop = asyncio.get_running_loop()
    old = await writer.token()
    monkeypatch.setattr(loop, "time", lambda now=loop.time: now() + fence.LOAD_AGE_S)
    new = await writer.token()
    assert list(writer._issued) == [new]
    assert await writer.write(old, entries([b"k"], b"v")) == [TOO_OLD]


async def test_what_is_no_cluster_is_unavailable_and_says_why(redis_url, patient, monkeypatch):
    monkeypatch.setattr(slots, "LEARN_EVERY_S", PATIENCE_S)  # a moment is as long as the test
    writer = writer_for(redis_url.replace("redis://", "redis+cluster://"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="cluster support disabled"):
            await writer.token()
    await writer.close()
    nobody = writer_for("redis+cluster://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(Unavailable, match="knows the slots"):
        await nobody.token([b"k"])
    with pytest.raises(Unavailable, match="moment ago"):
        await nobody.invalidate([b"k"])
    await nobody.close()


async def test_a_writer_of_one_server_says_that_it_met_a_cluster(redis_cluster, patient):
    writer = writer_for(f"redis://127.0.0.1:{redis_cluster.nodes[0].port}")
    foreign = [key for node, key in one_of_each(redis_cluster).items() if node is not redis_cluster.nodes[0]]
    token = await writer.token()
    with pytest.raises(Unavailable, match=r"write redis\+cluster://"):
        await writer.write(token, entries(foreign[:1]))
    await writer.close()


async def test_what_is_no_floor_is_taken_for_none(redis_cluster, writer):
    homes = one_of_each(redis_cluster)
    node, key = next(iter(homes.items()))
    redis_cluster.tell(node, "RPUSH", fence.floor_name(key), b"item")
    said = await write(writer, [*homes.values()])
    assert said == [UNSOUND, WRITTEN, WRITTEN]
    redis_cluster.tell(node, "DEL", fence.floor_name(key))
    redis_cluster.tell(node, "RPUSH", fence.floor_name(key), b"item")
    assert await writer.invalidate([*homes.values()]) == [WRITTEN, WRITTEN, WRITTEN]


async def test_wrong_password_is_unavailable_and_not_told_to_anyone(redis_cluster, patient):
    writer = writer_for(redis_cluster.url.replace("://", "://nobody:hunter2@"))
    with pytest.raises(Unavailable, match=r"(?i)password") as caught:
        await writer.token()
    assert "hunter2" not in str(caught.value)
    await writer.close()


GRACE = Grace(ttl_ms=2 * TTL_MS, fail_safe_ms=1_000)
RIGHTS = (
    "~k:* ~__crs:* -@all +time +evalsha +script|load +get +set +pexpire +unlink +type +hgetall +hset +hdel"
)


async def test_user_with_the_documented_rights_can_do_everything(redis_cluster, patient, monkeypatch):
    monkeypatch.setattr(slots, "ASIDE_S", PATIENCE_S)
    for node in redis_cluster.nodes:
        rights = f"{RIGHTS} +cluster|slots +asking".split()
        redis_cluster.tell(node, "ACL", "SETUSER", "updater", "reset", "on", ">secret", *rights)
    writer = writer_for(redis_cluster.url.replace("://", "://updater:secret@"))
    keys = keys_of(redis_cluster, redis_cluster.primaries()[0], 2)
    move = redis_cluster.migration(key_slot(keys[0]), redis_cluster.primaries()[1])
    assert await write(writer, keys) == [WRITTEN, WRITTEN]
    with pytest.raises(Forbidden, match=r"(?i)permission|can't run this command"):
        await writer.prolong(keys, GRACE)
    for node in redis_cluster.nodes:
        redis_cluster.tell(node, "ACL", "SETUSER", "updater", "+pttl")
    assert await writer.prolong(keys, GRACE) == [True, True]
    move.begin()
    move.move_keys()
    assert await results(writer, keys) == ["too_old", "unchanged"]
    assert await results(writer, keys) == ["unchanged", "unchanged"]
    # a slot on the move refuses scripts whose keys do not all exist, and nobody has a lease
    assert await writer.prolong(keys, Grace(3 * TTL_MS, 1_000)) == [None, True]
    await writer.invalidate(keys)
    await writer.close()
    move.undo()
    for node in redis_cluster.nodes:
        redis_cluster.tell(node, "ACL", "DELUSER", "updater")


async def test_cancelled_calls_never_leave_their_replies_to_others(redis_cluster, writer):
    rng = random.Random(7)

    async def one(i):
        keys = [b"k:%d" % (i + j) for j in range(20)]
        while True:
            said = await writer.write(await writer.token(keys), [Entry(k, {b"f": k}, TTL_MS) for k in keys])
            assert {each.result for each in said} <= {
                Result.WRITTEN,
                Result.UNCHANGED,
                Result.TOO_OLD,
                Result.REFUSED,
                Result.UNAVAILABLE,
            }

    async def cancelled(i):
        task = asyncio.ensure_future(one(i * 20))
        await asyncio.sleep(rng.random() / 50)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Unavailable):
            await task

    await asyncio.gather(*(cancelled(i) for i in range(60)))
    keys = [b"k:%d" % i for i in range(1200)]
    await until_written(writer, [b"last"])
    async with redis.asyncio.RedisCluster(port=redis_cluster.nodes[0].port, host="127.0.0.1") as client:
        for key in keys[::50]:
            assert await client.hgetall(key) in ({}, {b"f": key})


async def test_closed_writer_is_unavailable(writer):
    token = await writer.token([b"k"])
    await writer.close()
    assert await writer.write(token, entries([b"k"])) == [TOO_OLD]
    for call in (writer.token(), writer.invalidate([b"k"])):
        with pytest.raises(Unavailable, match="closed"):
            await call


@pytest.mark.parametrize(
    "url", ["redis+cluster://", "redis+cluster://x:y", "redis+cluster://x?no_such_option=1"]
)
async def test_url_that_cannot_work_is_refused_at_once(url):
    with pytest.raises(Misconfigured):
        writer_for(url)
