"""The promises of the two scripts, one after the other, on every version of Redis on this machine."""

from __future__ import annotations

import time

import pytest
import redis
from redis.crc import key_slot
from servers.fence_calls import commit, floor, invalidate, load_scripts, set_floor, token, write_through

from cacheupdater.local.redis_server import RedisServer
from cacheupdater_client.protocol import fence
from cacheupdater_client.protocol.fence import (
    ADOPTED,
    DUPLICATE,
    FOREIGN,
    REMOVED,
    SET,
    TOO_OLD,
    UNCHANGED,
    UNSOUND,
    WRITTEN,
    Refused,
)

SECOND = 1_000_000 * 1000  # of a token
ODD_KEYS = [
    b"{a}b",
    b"a{b}c",
    b"{}x",
    b"a{}b",
    b"{{x}}",
    b"a}b{c",
    b"{",
    b"}",
    b"\x00\xff{\r\n}",
    b"",
    b"a{b}{c}",
]


@pytest.fixture
def r(every_redis_url):
    with redis.Redis.from_url(every_redis_url) as client:
        load_scripts(client)
        yield client


def lives(r, name, ms, *, since):
    """Whether a key that was written after this token lives for so many milliseconds from its write on."""
    left = r.pttl(name)
    return ms - (token(r) - since) / 1_000_000 - 2 <= left <= ms


def test_commit_writes_the_value_its_ttl_and_the_floor(r):
    t = token(r)
    assert commit(r, t, (b"k", b"v", 5_000)) == [WRITTEN]
    assert r.get(b"k") == b"v"
    assert lives(r, b"k", 5_000, since=t)
    assert floor(r, b"k") == t


def test_commit_is_a_duplicate_when_its_token_has_written_already(r):
    t = token(r)
    commit(r, t, (b"k", b"v", 5_000))
    assert commit(r, t, (b"k", b"other", 5_000)) == [DUPLICATE]
    assert r.get(b"k") == b"v"


def test_commit_of_the_same_bytes_is_unchanged_and_moves_ttl_and_floor(r):
    commit(r, token(r), (b"k", b"v", 100_000))
    later = token(r)
    assert commit(r, later, (b"k", b"v", 200_000)) == [UNCHANGED]
    assert 190_000 < r.pttl(b"k") <= 200_000
    assert 190_000 < r.pttl(fence.floor_name(b"k")) <= 200_000
    assert floor(r, b"k") == later


def test_commit_of_an_older_token_is_refused_with_the_floor(r):
    older, newer = token(r), token(r)
    commit(r, newer, (b"k", b"new", 5_000))
    assert commit(r, older, (b"k", b"old", 5_000)) == [Refused(newer)]
    assert r.get(b"k") == b"new"


def test_commit_compares_every_digit_of_floor_and_token(r):
    t = token(r)  # as numbers in Lua these two would be equal
    set_floor(r, b"k", t + 1)
    assert commit(r, t, (b"k", b"old", 5_000)) == [Refused(t + 1)]


def test_commit_of_a_load_begun_before_an_invalidation_is_refused_and_the_key_stays_absent(r):
    before = token(r)
    assert invalidate(r, b"k") == [REMOVED]
    [refused] = commit(r, before, (b"k", b"old", 5_000))
    assert refused == Refused(floor(r, b"k"))
    assert r.get(b"k") is None


def test_commit_begun_after_an_invalidation_lands(r):
    invalidate(r, b"k")
    assert commit(r, token(r), (b"k", b"new", 5_000)) == [WRITTEN]


def test_invalidation_wins_over_a_load_of_the_same_microsecond(r):
    invalidate(r, b"k")
    same = floor(r, b"k") // 1000 * 1000
    assert commit(r, same, (b"k", b"old", 5_000)) == [Refused(floor(r, b"k"))]


def test_commit_of_an_absent_row_removes_the_key_and_sets_the_floor(r):
    r.set(b"k", b"v")
    t = token(r)
    assert commit(r, t, (b"k", None, 5_000)) == [WRITTEN]
    assert r.exists(b"k") == 0
    assert floor(r, b"k") == fence.absent_stamp(t)  # the mark by which a reader knows that the row is absent


@pytest.mark.parametrize(("seconds", "outcome"), [(-31, TOO_OLD), (-29, WRITTEN), (+5, TOO_OLD)])
def test_commit_is_too_old_beyond_load_age_or_ahead_of_the_clock(r, seconds, outcome):
    assert commit(r, token(r) + seconds * SECOND, (b"k", b"v", 5_000)) == [outcome]
    assert r.get(b"k") == (b"v" if outcome == WRITTEN else None)


def test_floor_far_ahead_no_longer_counts_because_the_clock_stepped_back(r):
    set_floor(r, b"k", token(r) + 10_000 * SECOND)
    t = token(r)
    assert commit(r, t, (b"k", b"v", 5_000)) == [WRITTEN]
    assert floor(r, b"k") == t


def test_invalidation_replaces_a_floor_far_ahead(r):
    before = token(r)
    set_floor(r, b"k", before + 10_000 * SECOND)
    invalidate(r, b"k")
    assert before <= floor(r, b"k") // 1000 * 1000 <= token(r)


def test_invalidation_keeps_a_higher_floor_and_renews_its_life(r):
    high = token(r) + 20 * SECOND
    set_floor(r, b"k", high, ttl_ms=30_000)
    invalidate(r, b"k")
    assert floor(r, b"k") == high
    assert r.pttl(fence.floor_name(b"k")) > 50_000


def test_write_through_sets_when_nothing_newer_happened(r):
    since = token(r)
    assert write_through(r, b"k", b"v", 90_000, since) == SET
    assert r.get(b"k") == b"v"
    assert 80_000 < r.pttl(b"k") <= 90_000
    assert r.pttl(fence.floor_name(b"k")) > 80_000
    assert floor(r, b"k") % 1000 == 999


def test_write_through_removes_after_a_newer_invalidation(r):
    since = token(r)
    invalidate(r, b"k")
    r.set(b"k", b"stale")
    assert write_through(r, b"k", b"v", 5_000, since) == REMOVED
    assert r.get(b"k") is None


def test_second_of_two_overlapping_write_throughs_removes(r):
    first, second = token(r), token(r)
    assert write_through(r, b"k", b"second", 5_000, second) == SET
    assert write_through(r, b"k", b"first", 5_000, first) == REMOVED


@pytest.mark.parametrize("seconds", [-31, +5])
def test_write_through_removes_when_its_token_proves_nothing(r, seconds):
    assert write_through(r, b"k", b"v", 5_000, token(r) + seconds * SECOND) == REMOVED
    assert r.get(b"k") is None


def test_write_through_refuses_an_older_load(r):
    older = token(r)
    write_through(r, b"k", b"v", 5_000, token(r))
    assert commit(r, older, (b"k", b"old", 5_000)) == [Refused(floor(r, b"k"))]


def test_write_through_of_a_hash_replaces_the_old_fields(r):
    r.hset(b"k", mapping={b"gone": b"1", b"a": b"1"})
    assert write_through(r, b"k", {b"a": b"2", b"b": b"3"}, 5_000, token(r)) == SET
    assert r.hgetall(b"k") == {b"a": b"2", b"b": b"3"}


@pytest.mark.parametrize("value", [b"v", {b"f": b"1"}, None])
def test_value_of_another_type_stays_and_its_neighbours_are_written(r, value):
    r.rpush(b"list", b"item")
    entries = (b"a", b"1", 5_000), (b"list", value, 5_000), (b"c", b"3", 5_000)
    assert commit(r, token(r), *entries) == [WRITTEN, FOREIGN, WRITTEN]
    assert r.lrange(b"list", 0, -1) == [b"item"]
    assert floor(r, b"list") % 1000 == fence.FOREIGN_FORM


@pytest.mark.parametrize("value", [b"v", {b"f": b"1"}, None])
def test_value_of_another_type_gives_way_when_the_caller_says_so(r, value):
    r.rpush(b"list", b"item")
    answer = WRITTEN if value is None else ADOPTED
    assert commit(r, token(r), (b"list", value, 5_000), replace=True) == [answer]
    assert r.type(b"list") == {bytes: b"string", dict: b"hash", type(None): b"none"}[type(value)]


def test_key_that_fails_answers_for_itself_and_its_neighbours_are_written(r):
    entries = (b"a", b"1", 5_000), (b"bad", b"v", 0), (b"c", b"3", 5_000)
    first, failed, third = commit(r, token(r), *entries)
    assert (first, third) == (WRITTEN, WRITTEN)
    assert "ttl must be at least 1 ms" in failed.text
    assert r.get(b"bad") is None


NO_FLOORS = {
    "padded with zeros": b"0" * 30 + b"1700000000000000000",
    "of 8 MiB": b"9" * (8 * 1024 * 1024),
    "nothing": b"",
    "letters": b"z" * 19,
    "negative": b"-9" + b"9" * 30,
    "not a number": b"nan",
    "hexadecimal": b"0x" + b"f" * 18,
    "with a line": b"9\n" + b"9" * 17,
    "of another length": b"+" + b"9" * 21,
    "a list": [b"x"],
    "a hash": {b"f": b"9"},
}


def stand(r, name, value):
    """Whoever may write to Redis may write this."""
    if isinstance(value, list):
        r.rpush(name, *value)
    elif isinstance(value, dict):
        r.hset(name, mapping=value)
    else:
        r.set(name, value)


@pytest.mark.parametrize("kind", NO_FLOORS)
def test_what_is_no_floor_is_taken_for_none_and_told(r, kind):
    name = fence.floor_name(b"bad")
    stand(r, name, NO_FLOORS[kind])
    t = token(r)
    assert commit(r, t, (b"bad", b"v", 5_000), (b"k", b"v", 5_000)) == [UNSOUND, WRITTEN]
    assert r.get(b"bad") == b"v"
    assert floor(r, b"bad") == t
    assert 0 < r.pttl(name) <= 70_000
    assert commit(r, token(r), (b"bad", b"w", 5_000)) == [WRITTEN]


def test_what_is_no_floor_and_would_lie_below_the_token_is_written_over(r):
    r.set(fence.floor_name(b"k"), b"0x" + b"f" * 17)
    t = token(r)
    assert commit(r, t, (b"k", b"v", 5_000)) == [WRITTEN]
    assert floor(r, b"k") == t


@pytest.mark.parametrize("kind", NO_FLOORS)
def test_an_invalidation_puts_a_floor_where_there_is_none(r, kind):
    r.set(b"bad", b"old")
    stand(r, fence.floor_name(b"bad"), NO_FLOORS[kind])
    before = token(r)
    assert invalidate(r, b"bad") == [REMOVED]
    assert r.get(b"bad") is None
    assert before < floor(r, b"bad") < before + 60 * SECOND
    assert isinstance(commit(r, before, (b"bad", b"late", 5_000))[0], Refused)


@pytest.mark.parametrize("kind", NO_FLOORS)
def test_a_write_through_is_not_kept_off_by_what_is_no_floor(r, kind):
    stand(r, fence.floor_name(b"bad"), NO_FLOORS[kind])
    since = token(r)
    assert write_through(r, b"bad", b"new", 5_000, since) == SET
    assert r.get(b"bad") == b"new"


def test_a_foreign_value_beside_what_is_no_floor_stays(r):
    r.set(b"k", b"\x80pickled")
    r.rpush(fence.floor_name(b"k"), b"x")
    assert commit(r, token(r), (b"k", b"{}", 5_000), form="json") == [FOREIGN]
    assert r.get(b"k") == b"\x80pickled"


@pytest.mark.parametrize(
    ("old", "new"), [(b"old", b"new"), ({b"f": b"old"}, {b"g": b"new"}), ([], {b"f": b"new"})]
)
def test_out_of_memory_fails_the_commit_and_leaves_value_and_floor_as_before(r, old, new):
    t = token(r)
    commit(r, t, (b"k", old or None, 50_000))
    if old == []:
        r.rpush(b"k", b"item")
    before = r.dump(b"k")
    r.config_set("maxmemory", 1)
    try:
        [failed] = commit(r, token(r), (b"k", new, 50_000), replace=True)
    finally:
        r.config_set("maxmemory", 0)
    assert "OOM" in failed.text
    assert r.dump(b"k") == before
    assert floor(r, b"k") == (fence.absent_stamp(t) if old == [] else t)


def test_out_of_memory_does_not_stop_removals(r):
    r.set(b"gone", b"v")
    r.set(b"changed", b"v")
    t = token(r)
    r.config_set("maxmemory", 1)
    try:
        assert commit(r, t, (b"gone", None, 5_000)) == [WRITTEN]
        assert invalidate(r, b"other") == [REMOVED]
        assert write_through(r, b"changed", b"new", 5_000, t) == REMOVED
    finally:
        r.config_set("maxmemory", 0)
    assert r.exists(b"gone", b"changed") == 0


def test_hash_is_replaced_whole_and_found_unchanged(r):
    r.hset(b"h", mapping={b"gone": b"1", b"kept": b"1"})
    assert commit(r, token(r), (b"h", {b"kept": b"2", b"new": b""}, 50_000)) == [ADOPTED]
    assert r.hgetall(b"h") == {b"kept": b"2", b"new": b""}
    assert 40_000 < r.pttl(b"h") <= 50_000
    assert commit(r, token(r), (b"h", {b"new": b"", b"kept": b"2"}, 90_000)) == [UNCHANGED]
    assert r.pttl(b"h") > 80_000


def test_hash_with_one_other_value_is_written(r):
    commit(r, token(r), (b"h", {b"f": b"1"}, 5_000))
    assert commit(r, token(r), (b"h", {b"f": b"2"}, 5_000)) == [WRITTEN]
    assert r.hgetall(b"h") == {b"f": b"2"}


def test_hash_of_ten_thousand_fields_is_written(r):
    big = {b"%d" % i: b"v" for i in range(10_000)}
    assert commit(r, token(r), (b"h", big, 5_000), (b"k", b"v", 5_000)) == [WRITTEN, WRITTEN]
    assert r.hgetall(b"h") == big


def test_hash_without_fields_is_an_absent_row(r):
    r.hset(b"h", b"f", b"v")
    assert commit(r, token(r), (b"h", {}, 5_000)) == [WRITTEN]
    assert r.exists(b"h") == 0


def test_empty_string_is_a_value(r):
    assert commit(r, token(r), (b"k", b"", 5_000)) == [WRITTEN]
    assert r.get(b"k") == b""


def test_floor_outlives_every_load_that_it_forbids(r):
    began = token(r)
    commit(r, token(r), (b"short", b"v", 1_000), (b"long", b"v", 500_000))
    invalidate(r, b"gone", hold_off_ms=20_000)
    for key, ms in (b"short", 60_000), (b"long", 500_000), (b"gone", 80_000):
        assert lives(r, fence.floor_name(key), ms, since=began)


def test_hold_off_refuses_loads_that_begin_within_it(r):
    before = token(r)
    invalidate(r, b"k", hold_off_ms=10_000)
    t = token(r)
    [refused] = commit(r, t, (b"k", b"maybe from a replica", 5_000))
    assert refused.wait_after(t) - 1e-5 <= 10.0 <= refused.wait_after(before) + 1e-5


def test_same_key_twice_in_one_call_is_written_once(r):
    assert commit(r, token(r), (b"k", b"1", 5_000), (b"k", b"2", 5_000)) == [WRITTEN, DUPLICATE]


def test_hundred_keys_of_all_kinds_are_answered_in_order(r):
    r.rpush(b"k50", b"x")
    values = [b"s", {b"f": b"1", b"g": b"2"}, None]
    entries = [(b"k%d" % i, values[i % 3], 5_000) for i in range(100)]
    outcomes = commit(r, token(r), *entries)
    assert outcomes == [FOREIGN if i == 50 else WRITTEN for i in range(100)]
    assert r.get(b"k99") == b"s"
    assert r.hgetall(b"k97") == {b"f": b"1", b"g": b"2"}


def test_odd_keys_keep_their_floor_in_their_own_slot(r):
    entries = [(key, key + b"!", 5_000) for key in ODD_KEYS]
    t = token(r)
    assert commit(r, t, *entries) == [WRITTEN] * len(ODD_KEYS)
    for key in ODD_KEYS:
        assert key_slot(fence.floor_name(key)) == key_slot(key)
        assert (r.get(key), floor(r, key)) == (key + b"!", t)


def test_cluster_node_takes_every_key_with_its_floor(every_redis_server):
    node = RedisServer(every_redis_server.executable, options=("--cluster-enabled", "yes"))
    with node, redis.Redis(port=node.port) as client:
        client.execute_command("CLUSTER ADDSLOTS", *range(16384))
        wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        load_scripts(client)
        for key in ODD_KEYS:
            assert commit(client, token(client), (key, b"v", 5_000)) == [WRITTEN]
            assert invalidate(client, key) == [REMOVED]


def wait_until(is_true, seconds=20):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
