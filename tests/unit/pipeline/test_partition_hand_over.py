"""The end of an owned partition: it finishes what it can in time, leaves the rest to the next owner, and loses no slot."""

from __future__ import annotations

import asyncio

import pytest
from stories.engine import namespace
from stories.shell import Rows, Shell, in_virtual_time, now

from cacheupdater.core.unit import Phase
from cacheupdater.errors import Unavailable

CONCURRENCY = 100  # of the stories' source


@in_virtual_time
async def test_hand_over_finishes_what_it_can_commits_and_abandons_the_rest():
    shell = Shell(namespace("quick"), namespace("slow"), head_timeout=60.0)
    shell.tables["quick"] = Rows({(1,): "one"}, took=1.0)
    shell.tables["slow"] = Rows({(1,): "one"}, took=100.0)
    async with shell.partition() as partition:
        shell.queue.touch(b"quick:1")
        shell.queue.touch(b"slow:1")
        await asyncio.sleep(0.01)
        began = now()
        handing_over = asyncio.get_running_loop().create_task(partition.hand_over(5.0))
        await asyncio.sleep(0.01)
        shell.queue.touch(b"quick:2")
        await handing_over
        assert now() - began == pytest.approx(5.0)
        assert shell.redis.get(b"quick:1") == b'"one"'
        assert shell.queue.commits == [(0, 1, 1)]
        assert partition.engine.cursor.scan == 2  # nothing was read any more
        assert not shell.observer.levels  # what was abandoned is the next owner's
        await asyncio.sleep(200.0)
        assert shell.redis.get(b"slow:1") is None


@in_virtual_time
async def test_hand_over_ends_as_soon_as_nothing_is_pending_and_so_does_the_partition():
    shell = Shell()
    shell.tables["p"].took = 0.5
    async with shell.partition() as partition:
        shell.queue.touch(b"p:1")
        await asyncio.sleep(0.01)
        await partition.hand_over(5.0)
        assert now() == pytest.approx(0.5)
        assert shell.queue.commits == [(0, 1, 1)]
        assert shell.observer.total("refreshes", label="p") == 1  # the last totals are told
        assert not shell.observer.levels
        await asyncio.sleep(10.0)
        assert not shell.observer.levels  # nothing reports them anew


@in_virtual_time
async def test_hand_over_does_not_wait_for_keys_that_turn_out_to_be_nobodys():
    """What is pending may also go without a load: the engine removes it in a step of its own."""
    shell = Shell()
    async with shell.partition() as partition:
        await asyncio.sleep(1.0)
        shell.queue.touch(b"p:no number")
        await asyncio.get_running_loop().create_task(partition.hand_over(5.0))  # begins once it was read
        assert now() == pytest.approx(1.0)
        assert shell.queue.commits == [(0, 1, 1)]


@in_virtual_time
async def test_hand_over_survives_a_queue_that_cannot_commit_any_more():
    shell = Shell()
    async with shell.partition() as partition:
        shell.queue.commit_errors = [Unavailable("no broker")] * 100
        shell.queue.touch(b"p:1")
        await asyncio.sleep(0.01)
        await partition.hand_over(5.0)
        assert shell.queue.backlog(0) == 1  # the next owner reads it again


@in_virtual_time
async def test_a_refresh_cut_off_at_hand_over_gives_its_slot_back():
    shell = Shell(head_timeout=60.0)
    shell.tables["p"].took = 100.0
    async with shell.partition() as partition:
        shell.queue.touch(b"p:1")
        await asyncio.sleep(0.01)
        assert shell.source.slots.free == CONCURRENCY - 1
        await partition.hand_over(1.0)
        await asyncio.sleep(0.01)
        assert shell.source.slots.free == CONCURRENCY


@in_virtual_time
async def test_a_refresh_cut_off_before_its_task_began_gives_its_slot_back_too():
    """The slot becomes free in the very turn of the loop in which the time is over."""
    shell = Shell()
    shell.source.slots.taken = CONCURRENCY  # others use them
    async with shell.partition() as partition:
        shell.queue.touch(b"p:1")
        await asyncio.sleep(0.01)

        def give_slot():
            shell.source.slots.taken = CONCURRENCY - 1
            partition.wake_up()

        asyncio.get_running_loop().call_at(now() + 1.0 - 5e-10, give_slot)
        await partition.hand_over(1.0)
        await asyncio.sleep(0.01)
        assert partition.engine._dedup.seats[b"p:1"].phase is Phase.RUNNING  # it was decided on,
        assert shell.writer.tokens == 0  # but never began
        assert shell.source.slots.free == 1
