"""The turn of the feed `poll`: it is stopped after Redis has given the turn, and before the answer has come."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from cacheupdater.adapters.feed_poll import PollFeed, PollSettings
from cacheupdater.errors import Unavailable
from cacheupdater.testing.memory_marks import MemoryMarks, MemoryPlace


class SlowMarks(MemoryMarks):
    """Marks that give the turn at once, and answer late."""

    def __init__(self, place):
        super().__init__(place)
        self.given, self.answers = asyncio.Event(), asyncio.Event()

    async def take(self):
        kept = await super().take()
        self.given.set()
        await self.answers.wait()
        return kept

    async def leave(self):
        self.answers.set()
        await super().leave()


class NoDatabase:
    """No test here comes to a statement."""

    async def close(self):
        """Nothing is open."""


@pytest.fixture
def place():
    return MemoryPlace(lambda: 0.0)  # no lease ends


@pytest.fixture
async def starting(place):
    """A feed, its marks, and its start, which waits for their answer."""
    marks = SlowMarks(place)
    feed = PollFeed(NoDatabase(), marks, PollSettings(()))
    start = asyncio.ensure_future(feed.start())
    await marks.given.wait()
    return feed, marks, start


async def is_free(place):
    return await MemoryMarks(place).take() is not None


async def test_a_start_that_is_cancelled_keeps_no_turn(place, starting):
    """As a reload does that removes the feed."""
    feed, _, start = starting
    assert not await is_free(place)
    start.cancel()
    with suppress(asyncio.CancelledError):
        await start
    await feed.stop()
    assert await is_free(place)


async def test_a_feed_that_is_stopped_meanwhile_keeps_no_turn(place, starting):
    feed, marks, start = starting
    stopping = asyncio.ensure_future(feed.stop())
    await asyncio.sleep(0)
    marks.answers.set()
    with pytest.raises(Unavailable, match="the feed was stopped"):
        await start
    await stopping
    assert await is_free(place)
