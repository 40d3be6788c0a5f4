"""The writer under sentinels: a new primary by command and by death, and sentinels that fail themselves."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest
from stories.cluster import entries, results
from suite.pace import PATIENCE_S, Metronome, soonest_of

from cacheupdater.adapters.writer_redis import sentinel, writer_for
from cacheupdater.core.answers import TOO_OLD, WRITTEN
from cacheupdater.errors import Misconfigured, Unavailable

RESUMED_S = 5.0  # after the sentinels have elected a successor
LOOKS_S = 1.5  # the writer looks once a second
LANDED = (["written"], ["unchanged"])
ATTEMPT_S = 1.2  # a token and a write, each bounded by 0.5 s; usually 0.2 s


@pytest.fixture
async def writer(patient, redis_sentinels):
    made = writer_for(redis_sentinels.url)
    yield made
    await made.close()


async def until_written(writer, value=b"v"):
    """Refreshes until one has landed; when."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(Unavailable):
                if await results(writer, [b"k"], value) in LANDED:
                    return time.monotonic()
            await asyncio.sleep(0.02)


async def elected(sentinels, dead):
    """When the sentinels name another one, who takes writes."""

    def look():
        new = sentinels.primary()
        return new is not dead and sentinels.tell(new, "ROLE")[0] == b"master"

    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(look):  # noqa: ASYNC110  no event says so
            await asyncio.sleep(0.02)
    return time.monotonic()


async def test_primary_replaced_by_order_is_left_though_it_still_takes_writes(redis_sentinels, writer):
    assert await results(writer, [b"k"], b"a") == ["written"]
    token = await writer.token()
    before = redis_sentinels.primary()
    after = await asyncio.to_thread(redis_sentinels.failover)
    assert redis_sentinels.tell(before, "ROLE")[0] == b"master"

    await asyncio.sleep(LOOKS_S)
    assert await writer.write(token, entries([b"k"], b"old")) == [TOO_OLD]
    await until_written(writer, b"b")
    assert redis_sentinels.tell(after, "GET", b"k") == b"b"
    assert await writer.write(token, entries([b"k"], b"old")) == [TOO_OLD]
    await writer.invalidate([b"k"])
    assert redis_sentinels.tell(after, "GET", b"k") is None


async def test_writes_go_on_within_five_seconds_when_the_primary_dies(redis_sentinels, writer):
    assert await results(writer, [b"k"], b"a") == ["written"]
    tokens = [await writer.token() for _ in range(8)]
    dead = redis_sentinels.primary()
    dead.kill()
    with pytest.raises(Unavailable):
        await writer.token()

    with Metronome() as control:
        resumed, known = await asyncio.gather(until_written(writer, b"b"), elected(redis_sentinels, dead))
    assert resumed - known < RESUMED_S + 4 * control.latest
    assert redis_sentinels.tell(redis_sentinels.primary(), "GET", b"k") == b"b"
    for token in tokens:
        assert await writer.write(token, entries([b"k"], b"old")) == [TOO_OLD]


async def test_demoted_primary_is_left_when_it_refuses_a_write(redis_sentinels, writer, monkeypatch):
    assert await results(writer, [b"k"], b"a") == ["written"]
    monkeypatch.setattr(sentinel, "LOOK_EVERY_S", 60.0)
    token = await writer.token()
    before = redis_sentinels.primary()
    await asyncio.to_thread(redis_sentinels.failover)
    redis_sentinels.demote(before)
    with pytest.raises(Unavailable, match="READONLY"):
        await writer.write(token, entries([b"k"], b"old"))
    assert await writer.write(token, entries([b"k"], b"old")) == [TOO_OLD]
    await until_written(writer, b"b")


async def test_sentinels_that_are_frozen_or_dead_do_not_hold_up_the_writer(redis_sentinels):
    frozen, dead, well = redis_sentinels.sentinels
    frozen.pause()
    dead.kill()
    made = []

    async def begin():
        """A writer that has never asked anybody."""
        began = time.monotonic()
        made.append(writer_for(redis_sentinels.url))
        return await until_written(made[-1]) - began

    async def go_on():
        """The primary needs no sentinel."""
        began = time.monotonic()
        return await until_written(made[-1]) - began

    await soonest_of(begin, ATTEMPT_S)
    well.pause()
    for _ in range(3):
        await asyncio.sleep(0.5)
        await soonest_of(go_on, ATTEMPT_S)
    for writer in made:
        await writer.close()


async def test_name_that_no_sentinel_knows_is_unavailable_and_says_so(patient, redis_sentinels):
    writer = writer_for(redis_sentinels.url.replace("/main/", "/mian/"))
    with pytest.raises(Unavailable, match="no sentinel names a primary called mian"):
        await writer.token()
    await writer.close()


async def test_writer_keeps_to_the_database_of_its_url(patient, redis_sentinels):
    writer = writer_for(redis_sentinels.url.removesuffix("0") + "3")
    assert await writer.write(await writer.token(), entries([b"k"])) == [WRITTEN]
    assert redis_sentinels.tell(redis_sentinels.primary(), "GET", b"k") is None
    assert b"db3" in redis_sentinels.tell(redis_sentinels.primary(), "INFO", "keyspace")
    await writer.close()


async def test_user_and_password_are_for_the_primary_and_not_for_the_sentinels(patient, redis_sentinels):
    primary = redis_sentinels.primary()
    redis_sentinels.tell(primary, "ACL", "SETUSER", "updater", "on", ">s@cret", "~*", "+@all")
    writer = writer_for(redis_sentinels.url.replace("://", "://updater:s%40cret@"))
    assert await results(writer, [b"k"]) == ["written"]
    await writer.close()
    wrong = writer_for(redis_sentinels.url.replace("://", "://updater:hunter2@"))
    with pytest.raises(Unavailable, match=r"(?i)password") as caught:
        await wrong.token()
    assert "hunter2" not in str(caught.value)
    await wrong.close()
    redis_sentinels.tell(primary, "ACL", "DELUSER", "updater")


async def test_url_that_wants_text_for_others_does_not_matter(patient, redis_sentinels):
    writer = writer_for(f"{redis_sentinels.url}?decode_responses=true")
    assert await results(writer, [b"k"]) == ["written"]
    await writer.close()


@pytest.mark.parametrize(
    "url", ["redis+sentinel://x", "redis+sentinel://x/main/one", "redis+sentinel://x/m?no=1"]
)
async def test_url_that_cannot_work_is_refused_at_once(url):
    with pytest.raises(Misconfigured):
        writer_for(url)
