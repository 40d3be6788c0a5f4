"""Old values live on while their source fails: the whole way from a read's hint to Redis, in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from stories.engine import namespace
from stories.shell import Shell, in_virtual_time

from cacheupdater.errors import Faulty, Unavailable, Unpaid

A, B = b"p:1", b"p:2"
TTL, FAIL_SAFE = 20.0, 100.0


def shell_of(**changed):
    shell = Shell(namespace(ttl=TTL, fail_safe=FAIL_SAFE, every=5.0), **changed)
    shell.tables["p"].rows |= {(1,): {"id": 1}, (2,): {"id": 2}}
    return shell


async def filled(shell):
    """Both values are in Redis."""
    shell.queue.touch(A, B)
    await asyncio.sleep(1.0)
    assert shell.redis.get(A)


def fail(shell, error=None):
    """The source is away from now on."""
    shell.tables["p"].error = error or Unavailable("no connection")


async def read(shell, seconds, *, every=1.0, key=A):
    """The key is read again and again. Returns after how many seconds its value was gone, or None."""
    for turn in range(int(seconds / every)):
        if not shell.redis.get(key):
            return turn * every
        shell.queue.touch(key)
        await asyncio.sleep(every)
    return None


@in_virtual_time
@pytest.mark.parametrize("every", [0.3, 3.0, 15.0])
async def test_a_value_that_is_read_lives_on_until_it_is_as_old_as_ttl_and_fail_safe_together(every):
    shell = shell_of()
    async with shell.partition():
        await filled(shell)
        fail(shell)
        gone = await read(shell, 300.0, every=every)
        assert TTL + FAIL_SAFE - 2.0 <= gone <= TTL + FAIL_SAFE + every
        assert shell.observer.total("prolonged", reason="prolonged") <= 2 + 4 * (TTL + FAIL_SAFE) / TTL + 1


@in_virtual_time
async def test_a_value_that_nobody_reads_expires():
    shell = shell_of(backlog_age=1.0)
    async with shell.partition():
        await filled(shell)
        fail(shell)
        assert await read(shell, 60.0) is None
        assert shell.redis.get(B) is None


@in_virtual_time
async def test_a_value_is_renewed_as_ever_when_its_source_is_back():
    shell = shell_of()
    async with shell.partition():
        await filled(shell)
        fail(shell)
        assert await read(shell, 60.0) is None
        assert [each.event for each in shell.notices.standing()] == ["load_failed", "prolonged"]
        shell.tables["p"].error = None
        shell.tables["p"].rows[1,] = {"id": 1, "new": True}
        await read(shell, 6.0)
        assert b"new" in shell.redis.get(A)
        assert not shell.notices.standing()
        await asyncio.sleep(TTL + 1.0)
        assert shell.redis.get(A) is None


@in_virtual_time
@pytest.mark.parametrize("error", [Faulty("a mistake"), ZeroDivisionError()])
async def test_a_loader_that_raises_keeps_its_values_too(error):
    shell = shell_of()
    async with shell.partition():
        await filled(shell)
        await asyncio.sleep(9.0)
        fail(shell, error)
        await read(shell, 0.1, every=0.1)
        assert shell.redis.ttl_ms(A) == pytest.approx(TTL * 1000, abs=500)  # with the first load that fails
        assert await read(shell, 80.0) is None


@in_virtual_time
async def test_a_budget_that_has_gone_elsewhere_is_no_reason_to_keep_a_value():
    shell = shell_of()
    async with shell.partition():
        await filled(shell)
        fail(shell, Unpaid("the budget has gone"))
        assert await read(shell, 60.0) == pytest.approx(TTL, abs=2.5)


@in_virtual_time
async def test_an_invalidated_value_stays_gone():
    shell = shell_of()
    async with shell.partition():
        await filled(shell)
        fail(shell)
        assert await read(shell, 30.0) is None
        shell.redis.invalidate(A)
        shell.queue.change(A)
        await read(shell, 10.0, key=B)
        assert shell.redis.get(A) is None


@in_virtual_time
async def test_values_live_on_over_a_short_failure_of_redis_and_it_is_told():
    shell = shell_of()
    async with shell.partition():
        await filled(shell)
        fail(shell)
        await read(shell, 3.0)
        prolong = shell.writer.prolong

        async def away(*_):
            raise Unavailable("Redis did not answer")

        shell.writer.prolong = away
        await read(shell, TTL - 8.0)
        assert "not_prolonged" in [each.event for each in shell.notices.standing()]
        shell.writer.prolong = prolong
        assert await read(shell, 60.0) is None
        assert "not_prolonged" not in [each.event for each in shell.notices.standing()]


@in_virtual_time
async def test_values_of_a_namespace_that_is_the_applications_are_left_alone():
    shell = shell_of()
    async with shell.partition() as partition:
        await filled(shell)
        partition._around.judging.is_foreign = lambda namespace: True
        fail(shell)
        assert await read(shell, 60.0) == pytest.approx(TTL, abs=2.5)
        assert shell.observer.total("prolonged", reason="prolonged") == 0
