"""`no_emit`: whose reads leave no hints, and whose do."""

from __future__ import annotations

import asyncio
import os
import threading
from operator import length_hint
from time import monotonic

import pytest
import redis
from stories.client import Ear

import cacheupdater_client
import cacheupdater_client.asyncio
from cacheupdater_client import no_emit, quiet
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

PATIENCE_S = 60.0


@pytest.fixture
def ear():
    ear = Ear("test_no_emit")
    ear.heard()
    return ear


@pytest.fixture
def client(redis_url, ear):
    with redis.Redis.from_url(redis_url) as plain:
        plain.mset({"a": "1", "b": "2"})
        plain.hset("h", "field", "value")
    with cacheupdater_client.Redis.from_url(redis_url, emit=ear.url) as client:
        yield client


def read_all(client):
    client.get("a")
    client.get("absent")
    client.get(b"a" * 200)  # the slow way
    client.mget("a", "b")
    client.hgetall("h")
    client.pipeline().get("a").get("b").execute()


def test_reads_within_leave_no_hints_and_reads_before_and_after_do(client, ear):
    client.get("a")
    ends = monotonic() + PATIENCE_S
    while not length_hint(client._hints.lease):  # until the buffer hands out places in advance
        assert monotonic() < ends
    with no_emit():
        read_all(client)
    client.get("b")
    client.get("b")
    assert ear.heard() == {(TOUCH, b"a"): 1, (TOUCH, b"b"): 2}
    assert not quiet.inside


def test_reads_of_declared_values_within_leave_no_hints(client, ear):
    @cacheupdater_client.Cache(client).value("n:{id:int}", ttl="1m")
    def number(id: int) -> int:
        return id

    assert number.get_many([1, 2]) == {1: 1, 2: 2}
    ear.heard()
    with no_emit():
        assert (number(1), number.get_many([1, 2])) == (1, {1: 1, 2: 2})
    assert ear.heard() == {}
    assert number.get_many([1, 2]) == {1: 1, 2: 2}
    assert ear.heard() == {(TOUCH, b"n:1"): 1, (TOUCH, b"n:2"): 1}


def test_changes_leave_their_hints_everywhere(client, ear):
    with no_emit():
        client.set("a", "2")
        client.invalidate("b")
    assert ear.heard() == {(CHANGE, b"a"): 1, (CHANGE, b"b"): 1}


def test_other_threads_leave_hints(client, ear):
    with no_emit():
        thread = threading.Thread(target=lambda: [client.get("a"), client.get("absent"), client.get("a")])
        thread.start()
        thread.join()
        client.get("b")
    assert ear.heard() == {(TOUCH, b"a"): 2, (MISS, b"absent"): 1}


def test_one_within_another_ends_alone_and_an_error_ends_it(client, ear):
    with no_emit():
        with pytest.raises(OSError, match="no such row"), no_emit():
            raise OSError("no such row")
        client.get("a")
    client.get("b")
    assert ear.heard() == {(TOUCH, b"b"): 1}


async def test_it_holds_for_a_task_and_those_that_it_begins_as_long_as_it_lasts(redis_url, client, ear):
    later = cacheupdater_client.asyncio.Redis.from_url(redis_url, emit=ear.url)
    over = asyncio.Event()

    async def reader(key, has_read):
        await later.get(key)
        has_read.set()
        await over.wait()
        await later.get("h2")

    read_b, read_a = asyncio.Event(), asyncio.Event()
    outside = asyncio.ensure_future(reader("b", read_b))
    with cacheupdater_client.asyncio.no_emit():
        within = asyncio.ensure_future(reader("a", read_a))
        await later.mget("a", "b")
        await read_a.wait()
        await read_b.wait()
    over.set()
    await asyncio.gather(outside, within)
    await later.aclose()
    assert ear.heard() == {(TOUCH, b"b"): 1, (MISS, b"h2"): 2}


def test_a_forked_child_is_not_kept_quiet_by_a_thread_that_stayed_in_the_parent():
    entered, over = threading.Event(), threading.Event()

    def administer():
        with no_emit():
            entered.set()
            over.wait(60)

    thread = threading.Thread(target=administer)
    thread.start()
    entered.wait(60)
    child = os.fork()
    if not child:
        os._exit(len(quiet.inside))
    _, status = os.waitpid(child, 0)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
