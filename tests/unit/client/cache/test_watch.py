"""Waiting for leases: one question for all that wait, and none for those whose wait is over."""

from __future__ import annotations

import asyncio
from functools import wraps

import pytest

from cacheupdater.testing import virtual_loop
from cacheupdater_client.asyncio.watch import Watch
from cacheupdater_client.cache.watch import POLL_S, Waiter, Waiters, freed, keys_of


def waiting(*groups):
    waiters = Waiters()
    each = [Waiter(set(keys)) for keys in groups]
    for waiter in each:
        waiters.add(waiter)
    return waiters, each


def test_all_that_wait_are_asked_for_together_and_not_twice_within_a_moment():
    waiters, _ = waiting({b"a", b"b"}, {b"b", b"c"})
    assert keys_of(waiters.due(1.0)) == [b"a", b"b", b"c"]
    assert waiters.due(1.0 + POLL_S / 2) == []
    assert len(waiters.due(1.0 + 2 * POLL_S)) == 2


def test_after_a_question_that_took_long_nobody_asks_for_as_long():
    waiters, _ = waiting({b"a"})
    waiters.due(1.0)
    waiters.answered(1.2)
    assert waiters.due(1.39) == []
    assert len(waiters.due(1.41)) == 1


def test_a_caller_is_free_when_its_last_key_is():
    waiters, (one, other) = waiting({b"a", b"b"}, {b"b"})
    asked = waiters.due(1.0)
    assert freed(asked, [b"a", b"b"], [True, False]) == [other]
    assert one.keys == {b"a"}


def test_nobody_is_asked_for_whose_keys_are_free_already():
    """Its thread has not run yet: an MGET for it would have no key."""
    waiters, _ = waiting({b"a"})
    freed(waiters.due(1.0), [b"a"], [False])
    assert waiters.due(2.0) == []


def test_a_caller_that_came_after_the_question_has_no_part_in_the_answer():
    waiters, _ = waiting({b"a"})
    asked = waiters.due(1.0)
    late = Waiter({b"a"})
    waiters.add(late)
    freed(asked, keys_of(asked), [False])
    assert late.keys == {b"a"}


# --- tasks --------------------------------------------------------------------------------------------


def in_virtual_time(test):
    """As the service's tests have it, which a base install cannot import."""

    @wraps(test)
    def run(*args, **named):
        return virtual_loop.run(test(*args, **named))

    return run


class Redis:
    """Keys with leases. It answers at once."""

    def __init__(self, *keys):
        self.leased, self.questions = set(keys), []

    async def held(self, keys):
        self.questions.append(list(keys))
        if self.leased is None:
            raise ConnectionError
        return [key in self.leased for key in keys]


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


@in_virtual_time
async def test_one_task_asks_for_all_and_the_others_only_sleep():
    redis = Redis(b"a", b"b")
    watch = Watch(redis.held)
    tasks = [asyncio.ensure_future(watch.rest([b"a" if n else b"b"], 10.0)) for n in range(1000)]
    await asyncio.sleep(1.0)
    assert len(watch._sleepers) == 999
    assert 90 <= len(redis.questions) <= 101
    assert redis.questions[-1] == [b"a", b"b"]
    redis.leased.clear()
    assert min(await asyncio.gather(*tasks)) > 8.9
    assert not watch._sleepers
    assert not watch._waiters._waiting


@in_virtual_time
async def test_a_task_that_sleeps_is_woken_when_its_key_is_free():
    redis = Redis(b"a", b"b")
    watch = Watch(redis.held)
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.rest([b"a"], 10.0))
        await settled()
        sleeper = group.create_task(watch.rest([b"b"], 10.0))
        await asyncio.sleep(1.0)
        redis.leased.remove(b"b")
        await asyncio.sleep(0.1)
        assert sleeper.done()
        redis.leased.clear()


@in_virtual_time
@pytest.mark.parametrize("ending", ["freed", "cancelled", "over"])
async def test_when_the_task_that_asks_has_ended_another_one_asks(ending):
    redis = Redis(b"a", b"b")
    watch = Watch(redis.held)
    first = asyncio.ensure_future(watch.rest([b"a"], 1.0))
    await settled()
    others = [asyncio.ensure_future(watch.rest([b"b"], 10.0)) for _ in range(3)]
    await asyncio.sleep(0.5)
    if ending == "freed":
        redis.leased.remove(b"a")
    elif ending == "cancelled":
        first.cancel()
    await asyncio.wait((first,))
    await settled()
    others[0].cancel()  # it is the one that asks by now
    await asyncio.sleep(1.0)
    redis.leased.clear()
    await asyncio.sleep(0.1)
    assert all(each.done() for each in others)


@in_virtual_time
async def test_an_error_of_redis_reaches_all_that_wait_and_nobody_hangs():
    redis = Redis(b"a")
    watch = Watch(redis.held)
    tasks = [asyncio.ensure_future(watch.rest([b"a"], 10.0)) for _ in range(5)]
    await asyncio.sleep(0.5)
    redis.leased = None
    got = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in got} == {ConnectionError}


@in_virtual_time
async def test_nobody_sleeps_beyond_the_end_of_the_wait():
    watch = Watch(Redis(b"a").held)
    got = await asyncio.gather(*(watch.rest([b"a"], 0.5) for _ in range(5)))
    assert all(-0.05 < left <= 0 for left in got)
