"""Commits to the queue: only finished packs, and each only once."""

from __future__ import annotations

import pytest
from stories.shell import Ledger, first_gain

from cacheupdater.core.cursors import Cursor
from cacheupdater.core.peers import NOBODY, Peer
from cacheupdater.errors import Unavailable
from cacheupdater.pipeline.commit import Committer

PEER = Peer(NOBODY)

PACKS = 8


@pytest.fixture
async def queue():
    """Eight packs that have all been fetched."""
    queue = Ledger()
    await anext(queue.assignments())
    for _ in range(PACKS):
        queue.touch(b"p:1")
    await queue.fetch(0, PACKS)
    return queue


def read(cursor, *offsets):
    """These packs, none of them finished."""
    packs = [cursor.read(offset, 0.0, PEER) for offset in offsets]
    for pack in packs:
        pack.hold(1)
    return packs


async def commit(committer, queue):
    """What the queue was told just now."""
    told = len(queue.commits)
    await committer.commit()
    return [done for _, _, done in queue.commits[told:]]


async def test_nothing_is_committed_beyond_what_is_done(queue):
    cursor = Cursor(0)
    committer = Committer(queue, first_gain(), cursor)
    first, second, third = read(cursor, 0, 1, 2)
    second.open = third.open = 0  # finished out of order
    assert await commit(committer, queue) == []
    assert queue.finished == [1, 2]
    assert queue.backlog(0) == PACKS - 2
    first.open = 0
    assert await commit(committer, queue) == [3]
    assert queue.backlog(0) == PACKS - 3


async def test_nothing_is_committed_twice(queue):
    cursor = Cursor(0)
    committer = Committer(queue, first_gain(), cursor)
    cursor.read(0, 0.0, PEER)
    assert [await commit(committer, queue) for _ in range(3)] == [[1], [], []]
    cursor.read(1, 0.0, PEER)
    assert await commit(committer, queue) == [2]


async def test_what_the_last_owner_committed_is_not_committed_again(queue):
    committer = Committer(queue, first_gain(offset=5), Cursor(5))
    assert await commit(committer, queue) == []


async def test_nothing_is_committed_backwards_when_the_queue_delivers_again(queue):
    cursor = Cursor(0)
    committer = Committer(queue, first_gain(), cursor)
    for offset in range(5):
        cursor.read(offset, 0.0, PEER)
    assert await commit(committer, queue) == [5]
    (again,) = read(cursor, 2)
    assert await commit(committer, queue) == []
    again.open = 0
    cursor.read(3, 0.0, PEER)
    assert await commit(committer, queue) == []
    for offset in (4, 5):
        cursor.read(offset, 0.0, PEER)
    assert await commit(committer, queue) == [6]


async def test_a_commit_that_failed_is_made_again_the_next_time(queue):
    cursor = Cursor(0)
    committer = Committer(queue, first_gain(), cursor)
    cursor.read(0, 0.0, PEER)
    queue.commit_errors.append(Unavailable("no broker"))
    with pytest.raises(Unavailable):
        await committer.commit()
    assert await commit(committer, queue) == [1]


async def test_what_was_finished_out_of_order_is_told_once_whatever_fails(queue):
    cursor = Cursor(0)
    committer = Committer(queue, first_gain(), cursor)
    first, _, _ = read(cursor, 0, 1, 2)
    cursor.read(3, 0.0, PEER)
    queue.commit_errors.append(Unavailable("no broker"))
    with pytest.raises(Unavailable):
        await committer.commit()
    cursor.read(4, 0.0, PEER)
    await committer.commit()
    await committer.commit()
    assert queue.finished == [3, 4]
    first.open = 0
    assert await commit(committer, queue) == [1]


async def test_a_commit_is_of_the_epoch_in_which_the_partition_was_gained(queue):
    cursor = Cursor(0)
    committer = Committer(queue, first_gain(), cursor)
    await anext(queue.assignments())  # somebody else's from now on
    cursor.read(0, 0.0, PEER)
    await committer.commit()
    assert queue.commits == [(0, 1, 1)]
    assert queue.backlog(0) == PACKS
