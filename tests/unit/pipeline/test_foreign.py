"""Foreign values among ours: one log line says what they are, and one that they are gone."""

from __future__ import annotations

import asyncio
import logging
import pickle

import pytest
from stories.shell import Shell, in_virtual_time

from cacheupdater.core.hints import Kind
from cacheupdater.errors import Unavailable
from cacheupdater.pipeline.keyed import STANDS_S
from cacheupdater.pipeline.notices import QUIET_S
from cacheupdater_client.protocol import fence

A, B = b"p:1", b"p:2"
PICKLED = pickle.dumps({"secret": "4711"})


def standing(shell):
    return [(each.event, each.subject) for each in shell.notices.standing()]


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, logger="cacheupdater")
    return lambda: [each.message for each in caplog.records if getattr(each, "event", "") == "foreign"]


@in_virtual_time
async def test_the_trouble_names_what_the_values_read_as_and_is_over_once_the_last_is_written(said):
    shell = Shell()
    shell.redis.set(A, PICKLED)
    shell.redis.set(B, PICKLED)
    async with shell.partition():
        shell.queue.touch(A, B)
        await asyncio.sleep(1.0)
        assert standing(shell) == [("foreign", "p")]
        shell.redis.delete(A)
        shell.queue.change(A, B)
        await asyncio.sleep(1.0)
        assert standing(shell) == [("foreign", "p")]
        shell.redis.delete(B)
        shell.queue.change(B)
        await asyncio.sleep(1.0)
        assert standing(shell) == []
    first, last = said()
    assert "2 keys left alone, for we did not write their values: they read as pickle" in first
    assert "`value.foreign: replace`" in first
    assert "over after" in last
    assert "4711" not in first


@in_virtual_time
async def test_values_that_say_that_there_is_no_row_are_no_trouble_and_hide_none(said):
    shell = Shell()
    disputed = fence.disputed_stamp(shell.redis.token())
    for key, value in ((A, b"null"), (B, b'{"id":2}')):
        shell.redis.set(key, value)
        shell.redis.set_floor(key, disputed)
    async with shell.partition():
        shell.queue.touch(A)
        await asyncio.sleep(1.0)
        assert standing(shell) == []
        shell.queue.touch(A, B)
        await asyncio.sleep(1.0)
        assert standing(shell) == [("foreign", "p")]
    [first] = said()
    assert "1 key left alone, for we did not write its value: the source shows no row" in first


@in_virtual_time
async def test_the_trouble_is_over_when_none_of_its_keys_was_met_for_long(said):
    shell = Shell()
    shell.redis.set(A, PICKLED)
    async with shell.partition():
        shell.queue.touch(A)
        await asyncio.sleep(STANDS_S / 2)
        assert standing(shell) == [("foreign", "p")]
        await asyncio.sleep(STANDS_S / 2 + QUIET_S)
        assert standing(shell) == []
    first, _ = said()
    assert (
        "p: 1 key left alone, for we did not write its value: it reads as pickle, where json would" in first
    )


@in_virtual_time
async def test_a_redis_that_does_not_show_the_value_costs_the_line_its_kind_and_nothing_else(
    said, monkeypatch
):
    shell = Shell()
    shell.redis.set(A, PICKLED)

    async def blind(keys, *, values=False):
        raise Unavailable("no right to read")

    monkeypatch.setattr(shell.writer, "look", blind)
    async with shell.partition() as partition:
        shell.queue.touch(A, B)
        await asyncio.sleep(1.0)
        assert partition.engine.pending == 0
        assert shell.redis.floor(B) is not None
    assert said() == ["foreign p: 1 key left alone, for we did not write its value"]


@pytest.fixture
def gate(monkeypatch):
    """Looks at Redis hang until it is opened."""

    def closed(shell):
        opened, look = asyncio.Event(), shell.writer.look

        async def slow(keys, *, values=False):
            await opened.wait()
            return await look(keys, values=values)

        monkeypatch.setattr(shell.writer, "look", slow)
        return opened

    return closed


@in_virtual_time
async def test_a_look_that_hangs_holds_up_neither_its_key_nor_the_end_of_its_trouble(said, gate):
    shell = Shell()
    shell.redis.set(A, PICKLED)
    opened = gate(shell)
    async with shell.partition() as partition:
        shell.queue.touch(A)
        await asyncio.sleep(1.0)
        assert partition.engine.pending == 0
        shell.redis.delete(A)
        shell.queue.send(Kind.MISS, A)
        await asyncio.sleep(1.0)
        assert fence.tells_age(shell.redis.floor(A))  # the miss was refreshed while the look hung
        opened.set()
        await asyncio.sleep(1.0)
    assert said() == []
    assert standing(shell) == []


@in_virtual_time
async def test_what_is_found_during_a_look_waits_for_the_sentence_with_the_kind(said, gate):
    shell = Shell()
    shell.redis.set(A, PICKLED)
    shell.redis.set(B, PICKLED)
    opened = gate(shell)
    async with shell.partition():
        shell.queue.touch(A)
        await asyncio.sleep(1.0)
        shell.queue.touch(B)
        await asyncio.sleep(1.0)
        assert said() == []
        opened.set()
        await asyncio.sleep(1.0)
    (only,) = said()
    assert "2 keys left alone, for we did not write their values: they read as pickle" in only
