"""The contract of the pauses with the pipeline and the commands: one suite for Redis, a cluster, sentinels, and the fake."""

from __future__ import annotations

import asyncio

import pytest
import redis

from cacheupdater.adapters.writer_redis import RedisPauses, writer_for
from cacheupdater.errors import Faulty, Unavailable
from cacheupdater.testing.memory_redis import MemoryPauses, MemoryRedis

pytestmark = pytest.mark.usefixtures("patient")

URLS = {
    "redis": lambda fixture: fixture("redis_url"),
    "cluster": lambda fixture: fixture("redis_cluster").url,
    "sentinel": lambda fixture: fixture("redis_sentinels").url,
}


@pytest.fixture(params=[*URLS, "memory"])
async def two(request):
    """The pauses as two processes see them."""
    if request.param == "memory":
        server = MemoryRedis(lambda: 1.0)
        yield MemoryPauses(server), MemoryPauses(server)
        return
    writers = [writer_for(URLS[request.param](request.getfixturevalue)) for _ in range(2)]
    yield tuple(map(RedisPauses, writers))
    for each in writers:
        await RedisPauses(each).resume(b"product")
        await each.close()


async def test_a_pause_is_seen_by_all_until_it_is_over(two):
    here, there = two
    assert dict(await there.entries()) == {}

    await here.pause(b"product", b"why")
    await here.pause(b"banner", b"")
    assert dict(await there.entries()) == {b"product": b"why", b"banner": b""}

    await there.pause(b"product", b"again")
    await there.resume(b"banner")
    await there.resume(b"nothing")
    assert dict(await here.entries()) == {b"product": b"again"}


async def test_what_another_program_has_put_there_is_no_pause(redis_url):
    writer = writer_for(redis_url)
    with redis.Redis.from_url(redis_url) as plain:
        plain.set("__crs:paused", "x")

    with pytest.raises(Faulty, match="WRONGTYPE"):
        await RedisPauses(writer).entries()
    await writer.close()


async def test_a_redis_that_is_away_is_unavailable(redis_server):
    writer = writer_for(redis_server.url)
    redis_server.stop()

    with pytest.raises(Unavailable):
        await RedisPauses(writer).entries()
    await writer.close()


async def test_the_rights_of_a_writer_are_enough(redis_url):
    with redis.Redis.from_url(redis_url) as plain:
        rights = "~product:* ~__crs:* -@all +time +evalsha +script|load +get +set +pexpire +unlink +type +hgetall +hset +hdel"
        plain.execute_command("ACL", "SETUSER", "updater", "reset", "on", ">secret", *rights.split())
        writer = writer_for(redis_url.replace("://", "://updater:secret@"))
        try:
            await RedisPauses(writer).pause(b"product", b"why")
            assert dict(await RedisPauses(writer).entries()) == {b"product": b"why"}
            await RedisPauses(writer).resume(b"product")
        finally:
            await writer.close()
            plain.execute_command("ACL", "DELUSER", "updater")
            await asyncio.sleep(0)
