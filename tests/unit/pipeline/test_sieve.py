"""A backlog of old reads costs nothing. After some seconds, a client's wrong clock costs nothing either."""

from __future__ import annotations

import asyncio

import pytest
from stories.engine import namespace
from stories.shell import Shell, in_virtual_time, now

from cacheupdater.core.hints import Kind
from cacheupdater.pipeline.partition import FETCH_PACKS
from cacheupdater_client.protocol import wire

EPOCH = 1_700_000_000.0  # what the wall clock says at the beginning


def shell_with_a_clock():
    shell = Shell(namespace(every=0.0))
    shell.tables["p"].rows = {(number,): "row" for number in range(1000)}
    shell.wall = lambda: EPOCH + now()
    return shell


async def second(shell):
    """A second of virtual time, at whose end the service lets the sieve report."""
    await asyncio.sleep(1.0)
    shell.around.sieve.tell(now())


def offer(shell, kind, *keys, age):
    """A pack that was made so many seconds ago, by a right clock."""
    assert shell.queue.offer(0, wire.encode_pack(kind, int((EPOCH + now() - age) * 1000), keys))


@in_virtual_time
async def test_reads_older_than_a_minute_are_dropped_and_counted_and_changes_never_are():
    shell = shell_with_a_clock()
    for kind in Kind:
        offer(shell, kind, b"p:%d" % kind, b"p:1%d" % kind, age=61.0)
    offer(shell, Kind.TOUCH, b"p:3", age=59.0)
    async with shell.partition():
        await asyncio.sleep(1.0)
        assert shell.observer.total("dropped", label="p", reason="late") == 4
        assert {key for keys in shell.tables["p"].asked for key in keys} == {(2,), (12,), (3,)}
        assert shell.queue.backlog(0) == 0


@pytest.mark.parametrize("off", [-3600.0, -70.0, 70.0, 3600.0])
@in_virtual_time
async def test_a_client_whose_clock_is_off_is_heard_after_some_seconds_and_named_once(off, caplog):
    shell = shell_with_a_clock()
    async with shell.partition():
        for turn in range(60):
            offer(shell, Kind.TOUCH, b"p:1", age=off)
            offer(shell, Kind.TOUCH, b"p:2", age=0.1)
            await second(shell)
            if turn == 15:
                shell.tables["p"].asked.clear()
        assert sum((1,) in keys for keys in shell.tables["p"].asked) >= 43
        told = {notice.event: notice.text for notice in shell.notices.standing()}
        assert ("behind" in told.pop("clock_off")) is (off > 0)
        assert set(told) == ({"late"} if off > 60 else set())  # until the clock was known
        assert sum("clock_off" in message for message in caplog.messages) == 1


@in_virtual_time
async def test_a_long_backlog_of_old_reads_is_no_wrong_clock_and_costs_no_row():
    shell = shell_with_a_clock()
    for number in range(20 * FETCH_PACKS):
        offer(shell, Kind.TOUCH, b"p:%d" % (number % 1000), age=600.0)
    async with shell.partition():
        await asyncio.sleep(1.0)
        offer(shell, Kind.MISS, b"p:7", age=0.0)
        await second(shell)
        assert shell.tables["p"].asked == [((7,),)]
        assert [notice.event for notice in shell.notices.standing()] == ["late"]


@in_virtual_time
async def test_reads_that_are_dropped_are_told_when_it_begins_and_a_minute_after_the_last(caplog):
    caplog.set_level("INFO")
    shell = shell_with_a_clock()
    async with shell.partition():
        for turn in range(30):
            age = 1000.0 + 31.0 * turn  # no age repeats, so no clock is taken to be wrong
            offer(shell, Kind.MISS, b"p:%d" % turn, b"p:1%d" % turn, age=age)
            await second(shell)
        [notice] = shell.notices.standing()
        assert (notice.event, notice.keys) == ("late", 60)
        [begun] = caplog.messages
        assert begun.startswith("late: reads are reported more than a minute late")
        for _ in range(59):
            await second(shell)
        assert shell.notices.standing() == [notice]
        await second(shell)
        await second(shell)
        assert shell.notices.standing() == []
        _, ended = caplog.messages
        assert ended.startswith("late: over after ")
        assert ended.endswith(" s (30 times, 60 keys dropped)")


@in_virtual_time
async def test_packs_that_do_not_say_when_they_were_made_are_taken():
    shell = shell_with_a_clock()
    shell.queue.touch(b"p:1")
    assert shell.queue.offer(0, wire.encode_pack(Kind.TOUCH, 1, [b"p:2"]))
    async with shell.partition():
        await asyncio.sleep(1.0)
        assert shell.tables["p"].asked == [((1,), (2,))]
