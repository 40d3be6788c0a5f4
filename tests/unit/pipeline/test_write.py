"""Writes to Redis: each key fails alone, braked values stay, and answers come in the order of the keys."""

from __future__ import annotations

from itertools import count

import pytest
from stories.shell import in_virtual_time

from cacheupdater.core.answers import ADOPTED, BRAKED, UNCHANGED, WRITTEN, Answer, Result
from cacheupdater.errors import Unavailable
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.pipeline.write import matched, prepare, write
from cacheupdater.testing.memory_redis import MemoryRedis, MemoryWriter
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.encoding import encoder

KEYS = [b"p:1", b"p:2", b"p:3"]
CANNOT = object()  # no encoding knows it


@pytest.fixture
def redis():
    return MemoryRedis(lambda: 1000.0)


async def refresh(redis, found, *, braked=(), keys=KEYS, encoding="json"):
    """As the partition does after its load; the answers."""
    stay = dict.fromkeys(braked, BRAKED)
    recipe = Recipe(None, MemoryWriter(redis), encoder(encoding), ttl=300.0)
    prepared = prepare(recipe, keys, found, complete=None not in found, stay=stay, lot=0.5)
    return await write(recipe, redis.token(), prepared, namespace="p", observer=RecordingObserver())


def test_values_are_matched_in_the_order_of_the_keys_with_none_for_no_row():
    assert matched([(1,), (2,), (3,)], {(3,): "c", (1,): "a"}) == ["a", None, "c"]


@in_virtual_time
async def test_each_value_is_written_under_its_key_with_its_own_ttl(redis):
    assert await refresh(redis, ["a", "b", "c"]) == [WRITTEN] * 3
    assert [redis.get(key) for key in KEYS] == [b'"a"', b'"b"', b'"c"']
    lives = [redis.ttl_ms(key) for key in KEYS]
    assert len(set(lives)) == 3
    assert all(270_000 <= life <= 300_000 for life in lives)


@in_virtual_time
async def test_the_same_bytes_again_are_answered_as_unchanged_in_their_place():
    times = count(1000.0)
    redis = MemoryRedis(lambda: next(times))
    await refresh(redis, ["x", "b", "x"])
    assert await refresh(redis, ["a", "b", "c"]) == [WRITTEN, UNCHANGED, WRITTEN]


@pytest.mark.parametrize("at", range(3))
@in_virtual_time
async def test_a_value_that_cannot_be_encoded_fails_its_own_key_only(redis, at):
    redis.set(KEYS[at], b"old")
    found = ["v", "v", "v"]
    found[at] = CANNOT
    answers = await refresh(redis, found)
    assert [answer.result for answer in answers] == [
        Result.FAILED if place == at else Result.WRITTEN for place in range(3)
    ]
    assert "object" in answers[at].why  # a person learns what is wrong with it
    assert [redis.get(key) for key in KEYS] == [b"old" if place == at else b'"v"' for place in range(3)]


@in_virtual_time
async def test_a_value_that_cannot_be_encoded_does_not_keep_an_absent_row(redis):
    redis.set(b"p:2", b"old")
    answers = await refresh(redis, [CANNOT, None, "c"])
    assert [answer.result for answer in answers] == [Result.FAILED, Result.WRITTEN, Result.WRITTEN]
    assert (redis.get(b"p:1"), redis.get(b"p:2"), redis.get(b"p:3")) == (None, None, b'"c"')


@in_virtual_time
async def test_a_row_that_is_absent_is_deleted(redis):
    redis.set(b"p:2", b"old")
    assert await refresh(redis, ["a", None, "c"]) == [WRITTEN] * 3
    assert redis.get(b"p:2") is None


@in_virtual_time
async def test_braked_rows_are_left_as_they_are_and_the_others_are_written(redis):
    for key in KEYS:
        redis.set(key, b"old", 5_000)
    assert await refresh(redis, [None, "b", None], braked={KEYS[0], KEYS[2]}) == [BRAKED, ADOPTED, BRAKED]
    assert [redis.get(key) for key in KEYS] == [b"old", b'"b"', b"old"]
    assert redis.ttl_ms(b"p:1") == 5_000
    assert redis.floor(b"p:1") is None


@in_virtual_time
async def test_braked_rows_and_bad_values_keep_their_places_among_the_answers(redis):
    keys = [b"p:%d" % n for n in range(5)]
    redis.set(keys[3], b'"d"')
    answers = await refresh(redis, [None, CANNOT, "c", "d", None], braked=keys[::4], keys=keys)
    results = [Result.BRAKED, Result.FAILED, Result.WRITTEN, Result.ADOPTED, Result.BRAKED]
    assert [answer.result for answer in answers] == results


@in_virtual_time
async def test_a_row_whose_change_was_announced_is_deleted_beside_a_braked_one(redis):
    for key in KEYS:
        redis.set(key, b"old")
    assert await refresh(redis, [None, None, "c"], braked={KEYS[0]}) == [BRAKED, WRITTEN, ADOPTED]
    assert [redis.get(key) for key in KEYS] == [b"old", None, b'"c"']


@in_virtual_time
async def test_a_value_may_stay_although_there_is_a_row(redis):
    for key in KEYS:
        redis.set(key, b'"old"')
    later = Answer(Result.UNDECIDED, wait=2.0)
    recipe = Recipe(None, MemoryWriter(redis), encoder("json"), ttl=300.0)
    prepared = prepare(recipe, KEYS, ["a", "b", "c"], complete=True, stay={KEYS[1]: later}, lot=0.5)
    answers = await write(recipe, redis.token(), prepared, namespace="p", observer=RecordingObserver())
    assert answers == [ADOPTED, later, ADOPTED]
    assert [redis.get(key) for key in KEYS] == [b'"a"', b'"old"', b'"c"']


class Down(MemoryWriter):
    """Redis that cannot be reached."""

    async def write(self, token, entries, **options):
        raise Unavailable("connection refused")


@in_virtual_time
async def test_a_unit_with_nothing_to_write_is_answered_without_redis(redis):
    recipe = Recipe(None, Down(redis), encoder("json"), ttl=300.0)
    stay = dict.fromkeys(KEYS[::2], BRAKED)
    prepared = prepare(recipe, KEYS, [None, CANNOT, None], complete=False, stay=stay, lot=0.5)
    answers = await write(recipe, redis.token(), prepared, namespace="p", observer=RecordingObserver())
    assert [answer.result for answer in answers] == [Result.BRAKED, Result.FAILED, Result.BRAKED]


@in_virtual_time
async def test_redis_that_cannot_be_reached_is_the_callers_to_handle(redis):
    recipe = Recipe(None, Down(redis), encoder("json"), ttl=300.0)
    prepared = prepare(recipe, KEYS, ["a", "b", "c"], complete=True, stay={}, lot=0.5)
    with pytest.raises(Unavailable):
        await write(recipe, redis.token(), prepared, namespace="p", observer=RecordingObserver())
