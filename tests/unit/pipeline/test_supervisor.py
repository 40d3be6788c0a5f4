"""The ownership of partitions: no other owner may begin before the hand-over, and no failure stays unnoticed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from stories.engine import namespace, plenty
from stories.shell import Rows, Shell, executing, in_virtual_time, now

from cacheupdater.core.budget import Source
from cacheupdater.pipeline.supervisor import ENDING, HAND_OVER, Supervisor

SOON = 0.5  # s: whatever needs no waiting for a load has happened by then


def shop(*, partitions=2, took=0.0, concurrency=100):
    """One namespace with ten rows."""
    source = Source("db", plenty(), concurrency=concurrency)
    shell = Shell(namespace(source=source, every=0.0), partitions=partitions, head_timeout=60.0)
    shell.tables["p"] = Rows({(n,): "row" for n in range(10)}, took=took)
    return shell


@asynccontextmanager
async def supervising(shell):
    supervisor = Supervisor(shell.queue, shell.make)
    async with executing(supervisor.run()):
        await asyncio.sleep(0.01)
        yield supervisor


def cached(shell):
    return [n for n in range(10) if shell.redis.get(b"p:%d" % n) == b'"row"']


def start(work):
    return asyncio.get_running_loop().create_task(work)


@in_virtual_time
async def test_every_partition_that_is_gained_is_run():
    shell = shop(partitions=3)
    async with supervising(shell) as supervisor:
        assert sorted(supervisor.partitions) == [0, 1, 2]
        for number in range(3):
            shell.queue.touch(b"p:%d" % number, partition=number)
        await asyncio.sleep(SOON)
        assert cached(shell) == [0, 1, 2]


@in_virtual_time
async def test_who_shares_budgets_hears_of_a_loss_before_others_and_of_a_gain_before_the_first_load():
    shell, heard = shop(partitions=3), []
    supervisor = Supervisor(shell.queue, shell.make, owns=lambda ours: heard.append(sorted(ours)))
    async with executing(supervisor.run()):
        await asyncio.sleep(0.01)
        assert heard == [[], [], [0, 1, 2]]
        shell.queue.lose(1, settled=lambda: heard.append("settled"))
        await asyncio.sleep(SOON)
        assert heard[3:] == [[0, 2], "settled"]


@in_virtual_time
async def test_a_lost_partition_is_handed_over_before_it_is_settled():
    shell = shop(took=2.0)
    settled = []
    async with supervising(shell) as supervisor:
        shell.queue.touch(b"p:1", partition=0)
        await asyncio.sleep(0.01)
        shell.queue.lose(0, settled=lambda: settled.append((now(), shell.queue.backlog(0), cached(shell))))
        await asyncio.sleep(HAND_OVER)
        assert settled == [(pytest.approx(2.01), 0, [1])]  # finished and committed by then
        assert list(supervisor.partitions) == [1]


@in_virtual_time
async def test_a_lost_partition_is_settled_in_time_even_if_its_load_hangs():
    shell = shop(took=1000.0)
    settled = []
    async with supervising(shell):
        shell.queue.touch(b"p:1", partition=0)
        await asyncio.sleep(0.09)
        shell.queue.lose(0, settled=lambda: settled.append(now()))
        await asyncio.sleep(2 * HAND_OVER)
        assert settled == [pytest.approx(0.1 + HAND_OVER)]
        assert shell.queue.backlog(0) == 1


@in_virtual_time
async def test_a_partition_that_comes_back_goes_on_where_it_was_handed_over():
    shell = shop()
    async with supervising(shell):
        shell.queue.touch(b"p:1")
        await asyncio.sleep(SOON)
        shell.queue.reassign([0])
        await asyncio.sleep(SOON)
        shell.queue.touch(b"p:2")
        await asyncio.sleep(SOON)
        assert shell.queue.commits == [(0, 1, 1), (0, 2, 2)]
        assert cached(shell) == [1, 2]


# --- draining -------------------------------------------------------------------------------------------


@in_virtual_time
async def test_draining_hands_over_all_partitions_within_the_same_time():
    shell = shop(took=1000.0)
    async with supervising(shell) as supervisor:
        for number in range(2):
            shell.queue.touch(b"p:%d" % number, partition=number)
        await asyncio.sleep(0.01)
        began = now()
        await supervisor.drain(3.0)
        assert now() - began == pytest.approx(3.0)
        assert not supervisor.partitions


@in_virtual_time
async def test_draining_ends_even_if_a_load_ignores_its_cancellation():
    shell = shop()
    release = asyncio.Event()

    async def load(keys, leaves):
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return {}

    shell.tables["p"].load = load
    async with supervising(shell) as supervisor:
        shell.queue.touch(b"p:1")
        await asyncio.sleep(0.01)
        began = now()
        await supervisor.drain(3.0)
        assert now() - began == pytest.approx(3.0 + ENDING)
        assert not supervisor.partitions
        release.set()


@pytest.mark.parametrize("loss_comes", [-0.1, 0.1], ids=["before", "after"])
@in_virtual_time
async def test_losing_and_draining_a_partition_at_once_hands_it_over_before_either_ends(loss_comes):
    """The queue must not go on, nor the process end, before the other one's hand-over is through."""
    shell = shop(took=2.0)
    settled = []

    async def lose():
        shell.queue.lose(0, settled=lambda: settled.append((now(), shell.queue.backlog(0))))

    async with supervising(shell) as supervisor:
        shell.queue.touch(b"p:1")
        await asyncio.sleep(0.5)
        asyncio.get_running_loop().call_later(1.0 + loss_comes, start, lose())
        await asyncio.sleep(1.0)
        await supervisor.drain(4.0)
        assert (now(), shell.queue.backlog(0)) == (pytest.approx(2.01), 0)
        assert not supervisor.partitions
        await asyncio.sleep(0.01)
        assert settled == [(pytest.approx(2.01), 0)]


@in_virtual_time
async def test_losing_and_draining_a_partition_in_the_same_moment_hands_it_over_once():
    """Wherever in the last turns of the one the other comes."""
    for turns in range(12):
        shell = shop()
        settled = []
        async with supervising(shell) as supervisor:
            shell.queue.touch(b"p:1")
            shell.queue.lose(0, settled=lambda settled=settled: settled.append(True))
            for _ in range(turns):
                await asyncio.sleep(0)
            await supervisor.drain(1.0)
            await asyncio.sleep(0.01)
            assert (supervisor.partitions, settled) == ({}, [True])


@in_virtual_time
async def test_a_partition_gained_in_the_moment_of_draining_is_handed_over():
    """Wherever in its first turns of the loop the drain finds it."""
    for turns in range(6):
        shell = shop(partitions=1)
        supervisor = Supervisor(shell.queue, shell.make)
        async with executing(supervisor.run()) as running:
            for _ in range(turns):
                await asyncio.sleep(0)
            await supervisor.drain(1.0)
            await shell.queue.close()
            async with asyncio.timeout(2.0):
                await running  # else somebody still runs whom nobody will ever hand over
            assert not supervisor.partitions


@in_virtual_time
async def test_a_partition_gained_while_draining_is_left_to_the_next_owner():
    shell = shop(took=2.0)
    async with supervising(shell) as supervisor:
        shell.queue.touch(b"p:1", partition=0)
        await asyncio.sleep(0.01)
        shell.queue.lose(0, settled=lambda: None)
        draining = start(supervisor.drain(5.0))
        await asyncio.sleep(0.01)
        shell.queue.gain(0)
        shell.queue.touch(b"p:2", partition=0)
        await draining
        await asyncio.sleep(SOON)
        assert not supervisor.partitions
        assert cached(shell) == [1]


# --- failures and shared sources ------------------------------------------------------------------------


@in_virtual_time
async def test_a_partition_that_fails_ends_the_supervisor_with_its_error():
    shell = shop(partitions=3)
    shell.queue.fetch_errors[1] = [ValueError("the broker speaks another protocol")]
    supervisor = Supervisor(shell.queue, shell.make)
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(SOON):
            await supervisor.run()
    assert raised.group_contains(ValueError, match="another protocol")
    assert asyncio.all_tasks() == {asyncio.current_task()}  # the others do not go on half


@in_virtual_time
async def test_a_unit_that_ends_wakes_partitions_that_wait_for_its_slot():
    shell = shop(took=1.0, concurrency=1)
    async with supervising(shell):
        shell.queue.touch(b"p:1", partition=0)
        await asyncio.sleep(0.01)
        shell.queue.touch(b"p:2", partition=1)
        await asyncio.sleep(1.5)
        assert cached(shell) == [1]
        await asyncio.sleep(0.52)
        assert cached(shell) == [1, 2]


@in_virtual_time
async def test_a_unit_cut_off_wakes_partitions_that_wait_for_its_slot():
    shell = shop(took=1000.0, concurrency=1)
    async with supervising(shell):
        shell.queue.touch(b"p:1", partition=0)
        await asyncio.sleep(0.01)
        shell.tables["p"].took = 0.0
        shell.queue.touch(b"p:2", partition=1)
        await asyncio.sleep(1.0)
        shell.queue.lose(0, settled=lambda: None)
        await asyncio.sleep(HAND_OVER + 0.01)
        assert cached(shell) == [2]
