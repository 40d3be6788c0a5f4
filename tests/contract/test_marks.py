"""The contract of the marks and the turn of a feed: one suite for Redis and for its fake."""

from __future__ import annotations

import time

import pytest
import redis.asyncio
from servers.redis_places import worlds
from suite.pace import TRIES

from cacheupdater.adapters.feed_marks_redis import RedisMarks
from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.feed_ports import LEASE
from cacheupdater.testing.memory_marks import MemoryMarks, MemoryPlace

pytestmark = pytest.mark.usefixtures("patient")

KEY = "cacheupdater:feed:shop"


class Real:
    """Redis. Time passes by moving the end of the turn."""

    def __init__(self, url, client):
        self.url, self.client, self.made = url, client, []

    def marks(self):
        self.made.append(RedisMarks(self.url, "shop"))
        return self.made[-1]

    async def wait(self, seconds):
        until = int(await self.client.hget(KEY, "until"))
        await self.client.hset(KEY, "until", until - round(seconds * 1000))

    async def lose(self):
        await self.client.delete(KEY)

    async def close(self):
        for each in self.made:
            await each.close()
        await self.client.aclose()


class Memory:
    """The same in memory."""

    def __init__(self):
        self.now = 1000.0
        self.place = MemoryPlace(lambda: self.now)

    def marks(self):
        return MemoryMarks(self.place)

    async def wait(self, seconds):
        self.now += seconds

    async def lose(self):
        self.place.lose()

    async def close(self):
        """Nothing is open."""


WORLDS = worlds(Real, Memory, decode_responses=True)


@pytest.fixture(params=WORLDS)
async def place(request):
    place = WORLDS[request.param](request.getfixturevalue)
    yield place
    await place.close()


async def test_the_first_takes_the_turn_and_finds_no_marks(place):
    assert await place.marks().take() == {}


async def test_marks_are_found_by_the_next_that_takes_the_turn(place):
    first, second = place.marks(), place.marks()
    await first.take()
    await first.keep({"products": "7", "stock": "1"})
    await first.keep({"products": "8"})
    await first.leave()
    assert await second.take() == {"products": "8", "stock": "1"}


async def refused_just_before_the_end(place, first, second):
    """The second gets no turn until a second before the end of the first's lease. A try that lasts longer than that says nothing."""
    for _ in range(TRIES):
        began = time.monotonic()
        await first.take()
        said = [await second.take()]
        await place.wait(LEASE - 1.0)
        said.append(await second.take())
        if time.monotonic() - began < 1.0:
            break
        await second.leave()
    assert said == [None, None]


async def test_only_one_has_the_turn_until_its_lease_ends(place):
    first, second = place.marks(), place.marks()
    await refused_just_before_the_end(place, first, second)
    await refused_just_before_the_end(place, first, second)  # the first has renewed its turn
    await place.wait(1.1)
    assert await second.take() == {}


async def test_a_reader_that_has_lost_the_turn_writes_nothing(place):
    first, second = place.marks(), place.marks()
    await first.take()
    await place.wait(LEASE + 0.1)
    await second.take()
    await second.keep({"products": "8"})
    for marks in ({"products": "7"}, {}):
        with pytest.raises(Unavailable, match="another updater reads this feed now"):
            await first.keep(marks)
    assert await first.take() is None
    await first.leave()  # takes nothing from the other
    assert await first.take() is None
    assert await second.take() == {"products": "8"}


async def test_whoever_comes_first_to_an_empty_redis_has_the_turn_and_keeps_its_marks_anew(place):
    first = place.marks()
    await first.take()
    await first.keep({"products": "7"})
    await place.lose()
    await first.keep({"products": "9"})
    assert await first.take() == {"products": "9"}


async def test_rubbish_in_redis_is_told_and_never_counts_as_a_turn(redis_url):
    place = Real(redis_url, redis.asyncio.Redis.from_url(redis_url, decode_responses=True))
    marks = place.marks()
    for until in ("tomorrow", "9" * 14, "-1", "inf"):
        await place.client.hset(KEY, mapping={"owner": "somebody", "until": until})
        assert await marks.take() == {}
    await place.client.hset(KEY, "mark:products", b"\xff")
    with pytest.raises(Faulty, match=f"another program has written to {KEY}; remove this key"):
        await marks.take()
    await place.client.set(KEY, "text")
    with pytest.raises(Faulty, match=f"another program has written to {KEY}; remove this key"):
        await marks.take()
    await place.close()


async def test_a_redis_that_is_away_is_unavailable_and_leaving_it_raises_nothing():
    marks = RedisMarks("redis://127.0.0.1:1/0", "shop")
    with pytest.raises(Unavailable):
        await marks.take()
    await marks.leave()
    await marks.close()
