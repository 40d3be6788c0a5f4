"""What a partition reports: which keys the log names, at the debug level alone and as `log_keys` allows; when it is full."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest
from stories.engine import namespace, plenty
from stories.shell import Rows, Shell, in_virtual_time

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.errors import Faulty
from cacheupdater.pipeline.naming import named
from cacheupdater.pipeline.notices import REPEAT_S
from cacheupdater_client.protocol import wire

THEIRS, BROKEN = b"p:1", b"p:2"
LOG_KEYS = pytest.mark.parametrize("log_keys", ["full", "hash", "off"])


async def lines(shell, caplog, *, level):
    """What the log says while an application reads a key with its own value, and a key whose row cannot be loaded."""
    caplog.set_level(level, logger="cacheupdater")
    shell.tables["p"].rows = {(1,): {"id": 1}}
    shell.tables["p"].faults = {(2,): Faulty("cannot be loaded")}
    shell.redis.set(THEIRS, b"somebody's own")
    async with shell.partition():
        for _ in range(30):
            shell.queue.touch(THEIRS, BROKEN)
            await asyncio.sleep(1.0)
    return caplog.messages


@in_virtual_time
@LOG_KEYS
async def test_foreign_and_quarantined_keys_are_named_at_debug_as_far_as_allowed(log_keys, caplog):
    said = await lines(Shell(log_keys=log_keys), caplog, level=logging.DEBUG)
    for beginning, key in (("foreign: ", THEIRS), ("quarantined: ", BROKEN)):
        expected = {beginning + named(key, log_keys)} if log_keys != "off" else set()
        assert {line for line in said if line.startswith(beginning)} == expected


@in_virtual_time
@LOG_KEYS
async def test_above_debug_no_key_is_named(log_keys, caplog):
    said = await lines(Shell(log_keys=log_keys), caplog, level=logging.INFO)
    assert said, "the faults themselves are told"
    shown = [named(key, how) for key in (THEIRS, BROKEN) for how in ("full", "hash")]
    assert not [line for line in said if any(name in line for name in shown)]


# --- a partition that is full ---------------------------------------------------------------------------


@pytest.fixture
def full_lines(caplog):
    """The lines of the log about full partitions."""
    caplog.set_level(logging.INFO, logger="cacheupdater")
    return lambda: [line for line in caplog.messages if line.startswith("full ")]


def slow_shell(*, takes, pending, **limits):
    """One connection, on which each load takes so many seconds."""
    shell = Shell(
        namespace(source=Source("db", plenty(), concurrency=1)), pending=pending, head_timeout=60.0, **limits
    )
    shell.tables["p"] = Rows({(n,): "row" for n in range(4_000)}, took=takes)
    return shell


@in_virtual_time
async def test_a_partition_that_fills_again_and_again_has_one_line_at_each_end_and_one_a_minute(full_lines):
    """Sixteen packs are read where the limit allows two. Between their load and the next packs it is not full."""
    shell = slow_shell(takes=0.4, pending=2)
    async with shell.partition():
        for n in range(3_200):
            shell.queue.touch(b"p:%d" % n)
        await asyncio.sleep(1.5)
        [notice] = shell.notices.standing()
        assert (notice.event, notice.subject) == ("full", "0")
        await asyncio.sleep(REPEAT_S + 1.0)
        begins, lasts = full_lines()
        assert begins == (
            "full 0: this partition has 4 open keys, so no hint of it is read before some are done:"
            " hints come faster than the sources and Redis serve them"
        )
        assert re.search(r"[(]for 6[01] s, \d+ times[)]", lasts)
        await asyncio.sleep(60.0)
        assert shell.queue.backlog(0) == 0
        assert shell.notices.standing() == []
        [over] = full_lines()[2:]
        assert re.match(r"full 0: over after 8\d[.]0 s ", over)


@in_virtual_time
async def test_senders_who_are_not_read_while_others_are_have_a_line_too(full_lines):
    shell = slow_shell(takes=10.0, pending=800)
    async with shell.partition() as partition:
        for n in range(100):
            keys = [b"p:%d" % (10 * n + each) for each in range(10)]
            assert shell.queue.offer(0, wire.encode_pack(Kind.MISS, 0, keys), 1)
        await asyncio.sleep(1.5)
        assert not partition.engine.full
        [line] = full_lines()
        assert "so no hint of 1 sender, who sent most of them, is read before some are done" in line
        shell.tables["p"].took = 0.0
        await asyncio.sleep(20.0)
        assert shell.queue.backlog(0) == 0
        assert len(full_lines()) == 2
        assert shell.notices.standing() == []


@in_virtual_time
async def test_a_sender_who_is_read_a_little_at_a_time_has_one_line_at_each_end(full_lines):
    shell = slow_shell(takes=0.06, pending=2_000, unit_keys=20)
    async with shell.partition():
        for n in range(3_500):
            assert shell.queue.offer(0, wire.encode_pack(Kind.MISS, 0, [b"p:%d" % n]), 1)
        await asyncio.sleep(40.0)
        assert shell.queue.backlog(0) == 0
        begins, over = full_lines()
        assert "no hint of 1 sender" in begins
        assert re.match(r"full 0: over after \d+[.]0 s ", over)


@in_virtual_time
async def test_changes_that_wait_for_their_removal_are_named(full_lines):
    """So many were given up at once that their rate, two a second, does not let them go soon."""
    shell = Shell(
        namespace(source=Source("db", Bucket(2.0, 2.0, now=0.0), concurrency=0), max_backlog=1), removals=20
    )
    async with shell.partition():
        shell.queue.change(*(b"p:%d" % n for n in range(41)))
        await asyncio.sleep(1.5)
        [line] = full_lines()
        assert re.search(
            r"has 3\d open keys [(]3\d of them wait to be removed[)], so no hint of it is read", line
        )
        await asyncio.sleep(30.0)
        assert len(full_lines()) == 2


@in_virtual_time
async def test_a_moment_between_two_looks_is_no_trouble(full_lines):
    shell = slow_shell(takes=0.1, pending=2)
    async with shell.partition():
        await asyncio.sleep(1.2)
        for n in range(12):
            shell.queue.touch(b"p:%d" % n)
        await asyncio.sleep(3.0)
        assert shell.queue.backlog(0) == 0
        assert full_lines() == []


@in_virtual_time
async def test_a_partition_that_another_owner_has_is_not_full_here(full_lines):
    shell = slow_shell(takes=50.0, pending=2)
    async with shell.partition() as partition:
        for n in range(12):
            shell.queue.touch(b"p:%d" % n)
        await asyncio.sleep(1.5)
        assert len(full_lines()) == 1
        await partition.hand_over(2.0)
        assert shell.notices.standing() == []
