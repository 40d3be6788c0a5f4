"""The contract of a store with the cache: one suite for Redis (sync and asyncio, one node and a cluster) and for the fake."""

from __future__ import annotations

import asyncio
import time

import pytest
import redis
import redis.sentinel
from redis.exceptions import ResponseError
from stories.client import Both

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client.asyncio.store import Store as AsyncStore
from cacheupdater_client.cache.declared import Settings, declare
from cacheupdater_client.cache.fake import AwaitedStore, FakeStore, _Kept
from cacheupdater_client.cache.steps import Entry
from cacheupdater_client.cache.store import Store
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.fence import (
    ADOPTED,
    DUPLICATE,
    FOREIGN,
    TOO_OLD,
    UNCHANGED,
    WRITTEN,
    Refused,
)
from cacheupdater_client.protocol.lease import Grace, State

ME, OTHER = "me", "other"
SECOND = 1_000_000 * 1000  # of a token
HOUR_MS = 3_600_000


def load(number: int) -> dict | None:
    raise AssertionError("a store never loads")


def declared(**settings):
    return declare(load, "p:{number:int}", Settings(**{"ttl": "200s", **settings}), batch=False, waits=False)


DECLARED = declared()
TERMS = DECLARED.terms


class Real:
    """Redis, a store over one of our clients, and what other programs do there."""

    def __init__(self, client, plain, kind=Store):
        self.client, self.plain, self.others = client, plain, []
        self.store = Both(kind(client))

    def set(self, key, value):
        self.plain.set(key, value)

    def get(self, key):
        return self.plain.get(key)

    def ttl_ms(self, key):
        return self.plain.pttl(key)

    def lease(self, key):
        return self.plain.get(fence.lease_name(key))

    def set_lease(self, key, owner, px=None):
        self.plain.set(fence.lease_name(key), owner, px=px)

    async def close(self):
        if isinstance(self.store.client, AsyncStore):
            await self.client.aclose()
        else:
            self.client.close()
        for each in (self.plain, *self.others):
            each.close()


class Memory:
    """The same in memory."""

    def __init__(self):
        self.fake = FakeStore(lambda: 1_000_000 + time.monotonic())
        self.store = AwaitedStore(self.fake)

    def set(self, key, value):
        self.fake.set(key, value)

    def get(self, key):
        return self.fake.get(key)

    def ttl_ms(self, key):
        return (self.fake._values[key].until - self.fake._now()) * 1000

    def lease(self, key):
        return self.fake._of(self.fake._leases, key)

    def set_lease(self, key, owner, px=None):
        until = float("inf") if px is None else self.fake._now() + px / 1000
        self.fake._leases[key] = _Kept(owner.encode(), until)

    async def close(self):
        pass


def sync(fixture, **options):
    url = fixture("redis_url")
    return Real(cacheupdater_client.Redis.from_url(url, emit="none", **options), redis.Redis.from_url(url))


def asyncio_(fixture, **options):
    url = fixture("redis_url")
    client = cacheupdater_client.asyncio.Redis.from_url(url, emit="none", **options)
    return Real(client, redis.Redis.from_url(url), AsyncStore)


def sync_cluster(fixture, **options):
    start = {"host": "127.0.0.1", "port": fixture("redis_cluster").nodes[0].port}
    client = cacheupdater_client.RedisCluster(**start, emit="none", **options)
    return Real(client, redis.RedisCluster(**start))


def asyncio_cluster(fixture, **options):
    start = {"host": "127.0.0.1", "port": fixture("redis_cluster").nodes[0].port}
    client = cacheupdater_client.asyncio.RedisCluster(**start, emit="none", **options)
    return Real(client, redis.RedisCluster(**start), AsyncStore)


def sync_sentinel(fixture):
    servers = fixture("redis_sentinels")
    hosts = [("127.0.0.1", each.port) for each in servers.sentinels]
    sentinel = cacheupdater_client.Sentinel(hosts, emit="none")
    plain = redis.sentinel.Sentinel(hosts)
    world = Real(sentinel.master_for(servers.name), plain.master_for(servers.name))
    world.others = [*sentinel.sentinels, *plain.sentinels]
    world.plain.flushdb()
    return world


def sync_wrapped(fixture):
    url = fixture("redis_url")
    return Real(cacheupdater_client.wrap(redis.Redis.from_url(url), emit="none"), redis.Redis.from_url(url))


REAL = {
    "sync": sync,
    "asyncio": asyncio_,
    "sync-text": lambda fixture: sync(fixture, decode_responses=True),
    "asyncio-text": lambda fixture: asyncio_(fixture, decode_responses=True),
    "sync-resp3": lambda fixture: sync(fixture, protocol=3),
    "asyncio-resp3": lambda fixture: asyncio_(fixture, protocol=3),
    "sync-wrapped": sync_wrapped,
    "sync-sentinel": sync_sentinel,
    "sync-cluster": sync_cluster,
    "asyncio-cluster": asyncio_cluster,
}
ALL = {"fake": lambda _fixture: Memory(), **REAL}


@pytest.fixture(params=ALL)
async def world(request):
    one = ALL[request.param](request.getfixturevalue)
    yield one
    await one.close()


@pytest.fixture(params=REAL)
async def real(request):
    one = REAL[request.param](request.getfixturevalue)
    yield one
    await one.close()


async def look(world, key, owner=ME, **terms):
    [seen] = await world.store.look(owner, [key], TERMS._replace(**terms))
    return seen


async def fill(world, token, key, value, owner=ME):
    [outcome] = await world.store.fill(owner, [Entry(token, key, value)], DECLARED)
    return outcome


# --- leases -------------------------------------------------------------------------------------------


async def test_one_owner_gets_the_lease_of_an_absent_key_and_others_hear_how_long_it_lasts(world):
    mine = await look(world, b"p:1", lease_ms=5_000)
    assert (mine.state, mine.value, mine.left_ms) == (State.GRANTED, None, 5_000)
    taken = await look(world, b"p:1", OTHER)
    assert taken.state == State.TAKEN
    assert 0 < taken.left_ms <= 5_000
    assert await world.store.leased([b"p:1", b"p:2"]) == [True, False]


async def test_an_owner_gets_its_own_lease_again(world):
    await look(world, b"p:1")
    assert (await look(world, b"p:1")).state == State.GRANTED


async def test_a_fill_ends_the_lease_and_leaves_the_value_with_its_ttl(world):
    seen = await look(world, b"p:1")
    assert await fill(world, seen.token, b"p:1", b'{"a":1}') == WRITTEN
    assert world.get(b"p:1") == b'{"a":1}'
    assert 170_000 < world.ttl_ms(b"p:1") <= 200_000  # less a tenth at the most
    assert world.lease(b"p:1") is None
    assert (await look(world, b"p:1", OTHER)).state == State.FOUND


async def test_a_release_ends_the_lease_of_its_owner_alone(world):
    await look(world, b"p:1")
    await world.store.release(OTHER, [b"p:1"])
    assert (await look(world, b"p:1", OTHER)).state == State.TAKEN
    await world.store.release(ME, [b"p:1"])
    assert (await look(world, b"p:1", OTHER)).state == State.GRANTED


async def test_a_lease_is_taken_by_force_and_its_former_owner_cannot_end_it(world):
    await look(world, b"p:1")
    assert (await look(world, b"p:1", OTHER, by_force=True)).state == State.GRANTED
    await world.store.release(ME, [b"p:1"])
    assert world.lease(b"p:1") == b"other"


async def test_a_lease_that_its_owner_does_not_end_expires(world):
    await look(world, b"p:1", lease_ms=1)
    await asyncio.sleep(0.01)  # no state to poll for: an expired key is found out by reading it
    assert (await look(world, b"p:1", OTHER)).state == State.GRANTED


@pytest.mark.parametrize("px", [None, HOUR_MS], ids=["without an end", "of an hour"])
async def test_a_lease_that_is_none_of_ours_blocks_nobody(world, px):
    world.set_lease(b"p:1", "stranger", px)
    assert (await look(world, b"p:1")).state == State.GRANTED


async def test_many_keys_are_looked_at_and_filled_together(world):
    keys = [b"p:%d" % number for number in range(250)]  # more than one script takes
    world.set(keys[7], b"7")
    seen = await world.store.look(ME, keys, TERMS)
    assert [each.state == State.FOUND for each in seen] == [key == keys[7] for key in keys]
    entries = [
        Entry(each.token, key, b"1") for key, each in zip(keys, seen, strict=True) if each.value is None
    ]
    assert set(await world.store.fill(ME, entries, DECLARED)) == {WRITTEN}
    assert await world.store.read(keys) == [b"7" if key == keys[7] else b"1" for key in keys]
    assert not any(await world.store.leased(keys))


async def test_a_floor_moves_with_each_write_also_of_an_absent_row_and_with_each_change(world):
    assert await world.store.floors([b"p:1", b"p:2"]) == [b"", b""]
    seen, floors = await look(world, b"p:1", no_lease=True), [b""]
    for value in (b"1", b"1", None):
        await fill(world, seen.token, b"p:1", value)
        floors += await world.store.floors([b"p:1"])
        while (again := await look(world, b"p:1", value_ms=0, no_lease=True)).token == seen.token:
            pass  # of one microsecond
        seen = again
    await world.store.invalidate(b"p:1")
    floors += await world.store.floors([b"p:1"])
    assert len(set(floors)) == 5
    assert await world.store.floors([b"p:2"]) == [b""]


# --- what a fill may overwrite ------------------------------------------------------------------------


async def test_a_fill_that_began_before_a_change_is_refused(world):
    seen = await look(world, b"p:1")
    await world.store.invalidate(b"p:1")
    assert isinstance(await fill(world, seen.token, b"p:1", b"1"), Refused)
    assert world.get(b"p:1") is None
    assert world.lease(b"p:1") is None


async def test_a_fill_is_refused_by_a_newer_one_and_repeated_once(world):
    older = await look(world, b"p:1")
    newer = await look(world, b"p:1", by_force=True)
    while newer.token == older.token:  # of one microsecond
        newer = await look(world, b"p:1", by_force=True)
    assert await fill(world, newer.token, b"p:1", b"2") == WRITTEN
    assert isinstance(await fill(world, older.token, b"p:1", b"1"), Refused)
    assert await fill(world, newer.token, b"p:1", b"2") == DUPLICATE
    assert world.get(b"p:1") == b"2"


async def test_a_fill_of_the_same_bytes_is_unchanged(world):
    first = await look(world, b"p:1")
    await fill(world, first.token, b"p:1", b"1")
    second = await look(world, b"p:1", value_ms=0)
    assert await fill(world, second.token, b"p:1", b"1") == UNCHANGED


async def test_a_fill_over_a_value_of_somebody_else_adopts_it_once(world):
    world.set(b"p:1", b" 1")
    for value, answer in (b"1", ADOPTED), (b"1", UNCHANGED), (b"2", WRITTEN):
        seen = await look(world, b"p:1", value_ms=0)
        assert await fill(world, seen.token, b"p:1", value) == answer
    assert world.lease(b"p:1") is None


async def test_a_fill_over_a_value_that_a_change_has_outdated_is_written_whoever_made_it(world):
    world.set(b"p:1", b"1")
    for value, answer in (b"2", WRITTEN), (b"2", UNCHANGED):
        await world.store.outdate(b"p:1", 5_000)
        seen = await look(world, b"p:1", value_ms=0)
        assert await fill(world, seen.token, b"p:1", value) == answer


async def test_a_fill_of_another_age_is_too_old(world):
    seen = await look(world, b"p:1")
    assert await fill(world, seen.token - 31 * SECOND, b"p:1", b"1") == TOO_OLD


# --- absent rows --------------------------------------------------------------------------------------


async def test_an_absent_row_is_remembered_until_a_change(world):
    seen = await look(world, b"p:1")
    world.set(b"p:1", b"1")
    assert await fill(world, seen.token, b"p:1", None) == WRITTEN
    assert world.get(b"p:1") is None
    assert (await look(world, b"p:1")).state == State.ABSENT
    await world.store.invalidate(b"p:1")
    assert (await look(world, b"p:1")).state == State.GRANTED


async def test_an_absent_row_is_remembered_for_so_long_as_the_reader_says(world):
    seen = await look(world, b"p:1")
    await fill(world, seen.token, b"p:1", None)
    await asyncio.sleep(0.005)
    assert (await look(world, b"p:1", mark_ms=1)).state == State.GRANTED


async def test_a_later_row_ends_the_mark(world):
    await fill(world, (await look(world, b"p:1")).token, b"p:1", None)
    again = await look(world, b"p:1", mark_ms=0)
    assert again.state == State.GRANTED
    assert await fill(world, again.token, b"p:1", b"1") == WRITTEN
    assert (await look(world, b"p:1")).value == b"1"


# --- ages ---------------------------------------------------------------------------------------------


async def test_a_value_is_found_while_its_floor_is_young_and_is_shown_to_whoever_loads_anew(world):
    seen = await look(world, b"p:1")
    await fill(world, seen.token, b"p:1", b"1")
    assert (await look(world, b"p:1", OTHER, value_ms=60_000)).state == State.FOUND
    await asyncio.sleep(0.005)
    granted = await look(world, b"p:1", OTHER, value_ms=1)
    assert (granted.state, granted.value) == (State.GRANTED, b"1")
    taken = await look(world, b"p:1", value_ms=1)
    assert (taken.state, taken.value) == (State.TAKEN, b"1")


async def test_a_value_without_a_floor_has_no_age_that_would_do(world):
    world.set(b"p:1", b"1")
    assert (await look(world, b"p:1")).state == State.FOUND
    assert (await look(world, b"p:1", value_ms=HOUR_MS)).state == State.GRANTED


async def test_the_age_of_a_value_is_told_if_a_load_wrote_it(world):
    seen = await look(world, b"p:1")
    await fill(world, seen.token - 5 * SECOND, b"p:1", b"1")
    assert 5_000 <= (await look(world, b"p:1")).age_ms < 65_000
    world.set(b"p:2", b"1")
    assert (await look(world, b"p:2")).age_ms == -1
    assert (await look(world, b"p:3")).age_ms == -1


async def test_a_look_without_a_lease_takes_none(world):
    await fill(world, (await look(world, b"p:1")).token, b"p:1", b"1")
    await asyncio.sleep(0.005)  # a value has an age of at least a millisecond then
    seen = await look(world, b"p:1", value_ms=1, no_lease=True)
    assert (seen.state, seen.value) == (State.TAKEN, b"1")
    assert (await look(world, b"p:2", no_lease=True)).state == State.TAKEN
    assert not any(await world.store.leased([b"p:1", b"p:2"]))


# --- old values that stay -----------------------------------------------------------------------------


async def test_an_outdated_value_stays_readable_for_so_long_and_no_reader_who_asks_for_an_age_gets_it(world):
    await fill(world, (await look(world, b"p:1")).token, b"p:1", b"1")
    assert await world.store.outdate(b"p:1", 5_000)
    assert world.get(b"p:1") == b"1"
    assert 0 < world.ttl_ms(b"p:1") <= 5_000
    assert (await look(world, b"p:1")).state == State.FOUND
    outdated = await look(world, b"p:1", value_ms=HOUR_MS)
    assert (outdated.state, outdated.value, outdated.age_ms) == (State.GRANTED, b"1", -1)


async def test_a_value_without_an_end_gets_one_when_it_is_outdated(world):
    world.set(b"p:1", b"1")
    assert await world.store.outdate(b"p:1", 5_000)
    assert 0 < world.ttl_ms(b"p:1") <= 5_000


async def test_a_value_does_not_live_longer_because_it_is_outdated(world):
    await fill(world, (await look(world, b"p:1")).token, b"p:1", b"1")
    await world.store.outdate(b"p:1", HOUR_MS)
    assert world.ttl_ms(b"p:1") <= 200_000


async def test_a_load_that_began_before_a_value_was_outdated_is_refused_and_a_later_one_lands(world):
    await fill(world, (await look(world, b"p:1")).token, b"p:1", b"1")
    early = await look(world, b"p:1", value_ms=0, by_force=True)
    await world.store.outdate(b"p:1", 5_000)
    assert isinstance(await fill(world, early.token, b"p:1", b"1"), Refused)
    assert world.ttl_ms(b"p:1") <= 5_000
    late = await look(world, b"p:1", value_ms=0)
    assert await fill(world, late.token, b"p:1", b"2") == WRITTEN
    assert world.get(b"p:1") == b"2"
    assert world.ttl_ms(b"p:1") > 170_000


async def test_where_there_is_no_value_nothing_stays_and_the_mark_of_an_absent_row_ends(world):
    await fill(world, (await look(world, b"p:1")).token, b"p:1", None)
    assert not await world.store.outdate(b"p:1", 5_000)
    assert (await look(world, b"p:1")).state == State.GRANTED


async def prolonged(world, ttl_ms, fail_safe_ms, age_s=0):
    """The ttl of a value of this age after a failed load. Before, it is 180 to 200 s."""
    seen = await look(world, b"p:1", value_ms=0)
    await fill(world, seen.token - age_s * SECOND, b"p:1", b"1")
    await look(world, b"p:1", value_ms=0)
    await world.store.prolong(ME, [b"p:1"], Grace(ttl_ms, fail_safe_ms, 500))
    return world.ttl_ms(b"p:1")


async def test_a_failed_load_lets_the_old_value_live_for_one_more_ttl(world):
    assert 550_000 < await prolonged(world, 600_000, HOUR_MS) <= 600_000
    assert (await look(world, b"p:1")).age_ms >= 0  # its floor lives as long


async def test_no_value_becomes_older_than_its_ttl_and_fail_safe_together(world):
    assert 200_000 < await prolonged(world, 230_000, 2_000, age_s=10) <= 222_000


async def test_no_value_lives_shorter_because_a_load_has_failed(world):
    assert await prolonged(world, 1_000, HOUR_MS) > 170_000


async def test_a_value_whose_row_has_changed_gets_no_more_time(world):
    await fill(world, (await look(world, b"p:1")).token, b"p:1", b"1")
    await world.store.outdate(b"p:1", 5_000)
    await world.store.prolong(ME, [b"p:1"], Grace(60_000, HOUR_MS, 500))
    assert world.ttl_ms(b"p:1") <= 5_000


async def test_after_a_failed_load_its_lease_is_a_pause_and_somebody_elses_stays(world):
    await look(world, b"p:1", lease_ms=30_000)
    await look(world, b"p:2", OTHER, lease_ms=30_000)
    await world.store.prolong(ME, [b"p:1", b"p:2"], Grace(60_000, HOUR_MS, 10_000))
    paused = await look(world, b"p:1", OTHER)
    assert (paused.state, 0 < paused.left_ms <= 10_000) == (State.TAKEN, True)
    assert (await look(world, b"p:2")).left_ms > 10_000


# --- Redis alone --------------------------------------------------------------------------------------


async def test_a_foreign_value_stays(real):
    real.set(b"p:1", b"\x80\x04N.")  # a pickle
    seen = await look(real, b"p:1", value_ms=0)
    assert await fill(real, seen.token, b"p:1", b"1") == FOREIGN
    assert real.get(b"p:1") == b"\x80\x04N."
    assert real.lease(b"p:1") is None
    assert (await look(real, b"p:1", value_ms=HOUR_MS)).state is State.GRANTED  # nobody knows how old it is


async def test_values_are_bytes_whatever_the_client_decodes(real):
    real.set(b"p:1", b"\xff\x00")
    assert await real.store.get(b"p:1") == b"\xff\x00"
    assert await real.store.read([b"p:1", b"p:2"]) == [b"\xff\x00", None]
    assert (await look(real, b"p:1")).value == b"\xff\x00"


async def test_get_of_a_key_of_another_type_raises_what_redis_py_raises(real):
    real.plain.hset(b"p:1", "field", "value")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await real.store.get(b"p:1")


async def test_a_key_of_another_type_has_no_value_for_readers_and_stays(real):
    real.plain.hset(b"p:1", "field", "value")
    real.set(b"p:2", b"2")
    assert await real.store.read([b"p:1", b"p:2", b"p:3"]) == [None, b"2", None]
    first, second = await real.store.look(ME, [b"p:1", b"p:2"], TERMS)
    assert (first.state, first.value, first.age_ms) == (State.GRANTED, None, -1)
    assert (second.state, second.value) == (State.FOUND, b"2")
    assert await fill(real, first.token, b"p:1", b"1") == FOREIGN
    assert real.plain.hgetall(b"p:1") == {b"field": b"value"}
    assert real.lease(b"p:1") is None


async def test_a_mark_of_an_absent_row_does_not_hide_a_row_whose_key_has_got_another_type(real):
    seen = await look(real, b"p:1")
    await fill(real, seen.token, b"p:1", None)
    real.plain.rpush(b"p:1", "item")
    assert (await look(real, b"p:1")).state is State.GRANTED


async def test_a_lease_and_a_floor_of_another_type_count_as_none(real):
    real.plain.rpush(fence.lease_name(b"p:1"), "item")
    real.plain.rpush(fence.floor_name(b"p:1"), "item")
    seen = await look(real, b"p:1")
    assert seen.state == State.GRANTED
    assert await fill(real, seen.token, b"p:1", b"1") == fence.UNSOUND
    assert real.get(b"p:1") == b"1"


async def test_scripts_that_redis_has_forgotten_are_sent_again(real):
    real.plain.script_flush()
    seen = await look(real, b"p:1")
    real.plain.script_flush()
    assert await fill(real, seen.token, b"p:1", b"1") == WRITTEN
    assert real.lease(b"p:1") is None


async def test_the_scripts_run_on_every_version(every_redis_url):
    with cacheupdater_client.Redis.from_url(every_redis_url, emit="none") as client:
        world = Real(client, redis.Redis.from_url(every_redis_url))
        for test in (
            test_one_owner_gets_the_lease_of_an_absent_key_and_others_hear_how_long_it_lasts,
            test_a_fill_ends_the_lease_and_leaves_the_value_with_its_ttl,
            test_an_absent_row_is_remembered_until_a_change,
            test_a_lease_that_is_none_of_ours_blocks_nobody,
            test_a_load_that_began_before_a_value_was_outdated_is_refused_and_a_later_one_lands,
            test_a_failed_load_lets_the_old_value_live_for_one_more_ttl,
        ):
            client.flushdb()
            await (test(world, HOUR_MS) if test.__code__.co_argcount == 2 else test(world))
        world.plain.close()


@pytest.mark.parametrize("kind", ["sync-cluster", "asyncio-cluster"])
async def test_keys_whose_slot_has_moved_are_found_on_their_new_node(kind, redis_cluster, request):
    world = REAL[kind](request.getfixturevalue)
    key = b"p:1"
    await look(world, b"p:2")  # the client knows the nodes
    new = next(node for node in redis_cluster.primaries() if node is not redis_cluster.owner(key))
    redis_cluster.migrate_slot(redis.crc.key_slot(key), new)
    seen = await look(world, key)
    assert await fill(world, seen.token, key, b"1") == WRITTEN
    assert await world.store.get(key) == b"1"
    assert not any(await world.store.leased([key]))
    await world.close()


async def test_a_client_that_leaves_no_hints_is_refused_with_what_to_do(redis_url):
    with redis.Redis.from_url(redis_url) as client, pytest.raises(TypeError, match=r"wrap\(client\)"):
        cacheupdater_client.Cache(client)
