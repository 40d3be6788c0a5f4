"""Which keys the log names, and how: at the debug level alone, and as `log_keys` allows."""

from __future__ import annotations

import asyncio
import logging

import pytest
from stories.shell import Shell, in_virtual_time

from cacheupdater.errors import Faulty
from cacheupdater.pipeline.naming import named

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
