"""Redis' clock is set back: its floors lie ahead, so nothing can be written for so long, and existing values must stay."""

from __future__ import annotations

import asyncio

import pytest
from stories.engine import namespace
from stories.shell import Shell, in_virtual_time

KEYS = [b"p:%d" % number for number in range(100)]


@pytest.mark.parametrize("step", [30.0, 45.0, 59.0])
@in_virtual_time
async def test_hot_keys_that_are_merely_read_stay_readable_when_the_clock_of_redis_steps_back(step):
    shell = Shell(namespace(every=1.0))
    shell.tables["p"].rows = {(number,): {"n": number} for number in range(100)}
    ahead = shell.redis._clock
    async with shell.partition():
        shell.queue.touch(*KEYS)
        await asyncio.sleep(1.0)
        shell.redis._clock = lambda: ahead() - step
        for _ in range(70):
            shell.queue.touch(*KEYS)
            await asyncio.sleep(1.0)
            assert sum(shell.redis.get(key) is not None for key in KEYS) == len(KEYS)
        assert shell.observer.total("invalidations") == 0
