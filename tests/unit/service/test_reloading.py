"""Who asks for a reload gets its outcome, and a caller that goes away disturbs nobody."""

from __future__ import annotations

import asyncio

import pytest

from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.service.reloading import Reloading, Reread


class Levels:
    def level(self, *_args):
        """Nobody looks at the metric here."""


class Running:
    """A service with a configuration that never differs from the file's."""

    config = None


class File:
    """What the file says: a configuration, or a mistake."""

    def __init__(self, monkeypatch):
        self.reads = 0
        self.mistake = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.reloading = Reloading(Reread(lambda: None), Levels())
        monkeypatch.setattr(self.reloading, "reload", self.reload)

    async def reload(self, _running):
        self.reads += 1
        await self.may_go_on.wait()
        if self.mistake:
            raise Misconfigured("a mistake")
        return self.reads


@pytest.fixture
async def file(monkeypatch):
    file = File(monkeypatch)
    file.running = asyncio.ensure_future(file.reloading.run(Running()))
    await asyncio.sleep(0)
    yield file
    file.running.cancel()
    await asyncio.gather(file.running, return_exceptions=True)


async def test_callers_before_a_reload_begins_share_it(file):
    assert await asyncio.gather(*(file.reloading.outcome() for _ in range(3))) == [1, 1, 1]
    assert await file.reloading.outcome() == 2


async def test_a_caller_that_comes_while_a_reload_runs_gets_the_next_one(file):
    file.may_go_on.clear()
    first = asyncio.ensure_future(file.reloading.outcome())
    while not file.reads:  # noqa: ASYNC110  turns of the loop, no time
        await asyncio.sleep(0)
    second = asyncio.ensure_future(file.reloading.outcome())
    await asyncio.sleep(0)
    file.may_go_on.set()
    assert await asyncio.gather(first, second) == [1, 2]


async def test_a_mistake_reaches_the_caller_and_the_next_reload_goes_on(file):
    file.mistake = True
    with pytest.raises(Misconfigured, match="a mistake"):
        await file.reloading.outcome()
    file.mistake = False
    assert await file.reloading.outcome() == 2


async def test_a_caller_that_is_cancelled_takes_nothing_from_the_others(file):
    file.may_go_on.clear()
    gone, stays = (asyncio.ensure_future(file.reloading.outcome()) for _ in range(2))
    while not file.reads:  # noqa: ASYNC110  turns of the loop, no time
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    file.may_go_on.set()
    assert await stays == 1


async def test_before_the_start_and_after_the_end_nobody_waits_in_vain(file):
    file.may_go_on.clear()
    left = asyncio.ensure_future(file.reloading.outcome())
    while not file.reads:  # noqa: ASYNC110  turns of the loop, no time
        await asyncio.sleep(0)
    file.running.cancel()
    await asyncio.gather(file.running, return_exceptions=True)
    assert (await asyncio.gather(left, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    with pytest.raises(Unavailable, match="starts or stops"):
        await file.reloading.outcome()
