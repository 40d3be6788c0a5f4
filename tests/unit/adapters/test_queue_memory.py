"""The features of the memory queue alone: its caps, and how it makes listeners wait."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import pytest

from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.core import peers
from cacheupdater.errors import Unavailable
from cacheupdater_client.protocol import wire


async def own(queue):
    """Become the owner; the epoch of all partitions."""
    return (await anext(queue.assignments())).gained[0].epoch


async def finish(queue, epoch, *, partition=0, limit=1):
    """Fetch and commit; what came."""
    messages = await queue.fetch(partition, limit)
    await queue.commit(partition, epoch=epoch, done=messages[-1].offset + 1)
    return [message.payload for message in messages]


async def turns(n=5):
    """Let everything happen that only waits for a turn of the loop."""
    for _ in range(n):
        await asyncio.sleep(0)


async def test_first_epoch_is_one_and_offsets_grow_by_one():
    queue = MemoryQueue(2)
    assert await own(queue) == 1
    assert all(queue.offer(1, b"x") for _ in range(3))
    assert [message.offset for message in await queue.fetch(1, 9)] == [0, 1, 2]


async def test_asking_for_assignments_again_is_a_new_ownership():
    queue = MemoryQueue(1)
    await own(queue)
    queue.offer(0, b"a")
    await queue.fetch(0, 1)
    assert await own(queue) == 2
    assert [message.payload for message in await queue.fetch(0, 1)] == [b"a"]


async def test_offer_refuses_when_unread_packs_are_at_their_cap_until_one_is_read():
    queue = MemoryQueue(2, packs_max=2)
    await own(queue)
    assert [queue.offer(0, b"x") for _ in range(3)] == [True, True, False]
    assert queue.offer(1, b"another partition")
    await queue.fetch(0, 1)
    assert [queue.offer(0, b"x") for _ in range(2)] == [True, False]


async def test_packs_that_stay_open_for_long_keep_nobody_out_before_the_far_wider_cap():
    queue = MemoryQueue(1, packs_max=2, undone_max=10)
    epoch = await own(queue)
    for _ in range(10):
        assert queue.offer(0, b"x")
        await queue.fetch(0, 1)
    assert not queue.offer(0, b"x")
    await queue.commit(0, epoch=epoch, done=1)
    assert queue.offer(0, b"x")


async def test_finished_packs_behind_an_open_one_cost_nothing():
    """One hint that cannot be finished, and half a million that can."""
    queue = MemoryQueue(1, undone_max=10, bytes_max=2_000, open_bytes_max=2_005)
    epoch = await own(queue)
    queue.offer(0, b"stuck")
    await queue.fetch(0, 1)
    for number in range(1, 1_001):
        assert queue.offer(0, b"x" * 500)
        await queue.fetch(0, 1)
        await queue.commit(0, epoch=epoch, done=0, finished=[number])
    assert queue.backlog(0) == 1
    assert sum(queue.offer(0, b"x" * 500) for _ in range(9)) == 4


async def test_offer_refuses_when_the_bytes_of_open_packs_are_at_their_far_wider_cap():
    queue = MemoryQueue(1, bytes_max=10, open_bytes_max=24)
    epoch = await own(queue)
    for _ in range(3):
        assert queue.offer(0, b"12345678")
        await queue.fetch(0, 1)
    assert not queue.offer(0, b"1")
    await queue.commit(0, epoch=epoch, done=0, finished=[1])
    assert queue.offer(0, b"1")


async def test_what_was_finished_before_the_partition_moved_is_not_read_again():
    queue = MemoryQueue(1)
    epoch = await own(queue)
    for number in range(4):
        queue.offer(0, b"%d" % number)
    await queue.fetch(0, 3)
    await queue.commit(0, epoch=epoch, done=0, finished=[1])
    epoch = await own(queue)
    again = await queue.fetch(0, 9)
    assert [(message.offset, message.payload) for message in again] == [(0, b"0"), (2, b"2"), (3, b"3")]
    await queue.commit(0, epoch=epoch, done=4)
    assert queue.backlog(0) == 0


async def test_a_put_that_waits_is_taken_as_soon_as_another_pack_is_read():
    queue = MemoryQueue(1, packs_max=1)
    await own(queue)
    queue.offer(0, b"0")
    waiting = asyncio.ensure_future(queue.put(0, b"1"))
    await turns()
    assert not waiting.done()
    assert [message.payload for message in await queue.fetch(0, 9)] == [b"0"]
    await waiting
    assert [message.payload for message in await queue.fetch(0, 9)] == [b"1"]


async def test_offer_refuses_when_unread_bytes_are_at_their_cap_until_enough_are_read():
    queue = MemoryQueue(1, bytes_max=10)
    await own(queue)
    assert queue.offer(0, b"123456")
    assert not queue.offer(0, b"12345")
    assert queue.offer(0, b"1234")
    await queue.fetch(0, 1)
    assert not queue.offer(0, b"1234567")
    assert queue.offer(0, b"123456")


async def test_an_empty_partition_takes_even_a_pack_above_its_cap():
    queue = MemoryQueue(1, bytes_max=10)
    assert queue.offer(0, bytes(100))
    assert not queue.offer(0, b"1")


async def test_put_waits_for_room_and_serves_the_longest_waiting_first():
    queue = MemoryQueue(1, packs_max=1)
    epoch = await own(queue)
    queue.offer(0, b"0")
    waiting = [asyncio.ensure_future(queue.put(0, b"%d" % n)) for n in (1, 2)]
    await turns()
    assert not queue.offer(0, b"pushing in")
    assert await finish(queue, epoch) == [b"0"]
    await turns()
    assert [task.done() for task in waiting] == [True, False]
    assert await finish(queue, epoch) == [b"1"]
    assert await finish(queue, epoch) == [b"2"]
    await asyncio.gather(*waiting)


async def test_a_cancelled_put_takes_nothing_and_lets_those_behind_it_pass():
    queue = MemoryQueue(1, bytes_max=10)
    await own(queue)
    queue.offer(0, b"12345678")
    large, small = (asyncio.ensure_future(queue.put(0, payload)) for payload in (b"12345", b"12"))
    await turns()
    assert not small.done()
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    await small
    assert [message.payload for message in await queue.fetch(0, 9)] == [b"12345678", b"12"]


async def test_close_gives_up_waiting_puts_and_refuses_new_ones():
    queue = MemoryQueue(1, packs_max=1)
    queue.offer(0, b"0")
    waiting = asyncio.ensure_future(queue.put(0, b"1"))
    await turns()
    await queue.close()
    for put in (waiting, queue.put(0, b"2")):
        with pytest.raises(Unavailable, match="shutting down"):
            await put
    assert not queue.offer(0, b"3")


async def test_commit_refuses_what_was_never_fetched():
    queue = MemoryQueue(1)
    epoch = await own(queue)
    queue.offer(0, b"a")
    with pytest.raises(ValueError, match="beyond what was fetched"):
        await queue.commit(0, epoch=epoch, done=1)


@pytest.mark.parametrize("seed", range(50))
async def test_every_pack_arrives_in_order_within_the_caps_whatever_the_schedule(seed):
    rng = random.Random(seed)
    queue = MemoryQueue(1, packs_max=5, bytes_max=40, open_bytes_max=40)
    epoch, numbers = await own(queue), count()
    puts, seen, done = [], [], 0
    for _ in range(200):
        act = rng.randrange(5)
        if act <= 1:
            puts.append(asyncio.ensure_future(queue.put(0, b"%09d" % next(numbers))))
        elif act == 2 and queue.backlog(0) > len(seen) - done:
            seen += await queue.fetch(0, rng.randrange(1, 4))
        elif act == 3 and done < len(seen):
            done = rng.randrange(done, len(seen)) + 1
            await queue.commit(0, epoch=epoch, done=done)
        elif act == 4 and rng.random() < 0.1:
            epoch = await own(queue)
            del seen[done:]
        await turns(rng.randrange(3))
        assert queue.backlog(0) <= 4  # nine bytes each: forty bytes bind before five packs do
    while len(seen) < len(puts):
        await queue.commit(0, epoch=epoch, done=len(seen))
        seen += await queue.fetch(0, 9)
    await asyncio.gather(*puts)
    assert [message.payload for message in seen] == [b"%09d" % n for n in range(len(puts))]
    assert [message.offset for message in seen] == list(range(len(puts)))


# --- peers ----------------------------------------------------------------------------------------------


def pour(queue, peer, payload=b"flood"):
    """As much as there is room for."""
    poured = 0
    while queue.offer(0, payload, peer):
        poured += 1
    return poured


async def test_a_flood_leaves_room_for_others_and_is_read_in_turns_with_them():
    queue = MemoryQueue(1, packs_max=90)
    await own(queue)
    flooding, honest = queue.newcomer(), queue.newcomer()
    assert pour(queue, flooding) == 81
    assert all(queue.offer(0, b"honest", honest) for _ in range(3))
    read = [message.payload for message in await queue.fetch(0, 8)]
    assert read.count(b"honest") == 3


async def test_a_peer_that_stands_for_twenty_clients_has_twenty_shares_of_room_and_of_turns():
    queue = MemoryQueue(1, packs_max=1_610)
    await own(queue)
    collector, direct = queue.newcomer(), queue.newcomer()
    queue.stand(collector, 20)
    assert pour(queue, collector) == 1_601
    read = []
    for _ in range(200):
        pour(queue, direct, b"direct")
        pour(queue, collector)
        read += [message.payload for message in await queue.fetch(0, 8)]
    assert 18 <= read.count(b"flood") / read.count(b"direct") <= 22


async def test_who_has_the_number_of_a_collector_next_stands_for_one_client():
    queue = MemoryQueue(1)
    collector = queue.newcomer("process 7")
    queue.stand(collector, 20)
    assert queue.clients == 20
    queue.gone(collector, "process 7")
    assert queue.newcomer("process 7") == collector
    queue.offer(0, b"x", collector)
    assert queue.clients == 0
    assert [message.clients for message in await queue.fetch(0, 1)] == [1]


async def test_a_flood_that_waits_for_room_keeps_nobody_else_waiting():
    queue = MemoryQueue(1, packs_max=90)
    await own(queue)
    flooding, honest = queue.newcomer(), queue.newcomer()
    pour(queue, flooding)
    waiting = asyncio.ensure_future(queue.put(0, b"more", flooding))
    await turns()
    assert queue.offer(0, b"honest", honest)
    assert not waiting.done()
    await queue.fetch(0, 9)
    await waiting


async def test_changes_take_turns_with_the_reads_of_their_own_peer():
    queue = MemoryQueue(1)
    await own(queue)
    reads = wire.encode_pack(wire.TOUCH, 0, [b"product:%d" % n for n in range(1000)])
    change = wire.encode_pack(wire.CHANGE, 0, [b"product:7"])
    for payload in (*[reads] * 50, change):
        assert queue.offer(0, payload, 1)
    assert change in [message.payload for message in await queue.fetch(0, 2)]


async def test_packs_of_held_peers_stay_where_they_are_until_they_are_not_held():
    queue = MemoryQueue(1)
    epoch = await own(queue)
    queue.offer(0, b"flood", 1)
    queue.offer(0, b"honest", 2)
    assert await finish(queue, epoch, limit=9) == [b"flood", b"honest"]
    queue.offer(0, b"flood", 1)
    fetching = asyncio.ensure_future(queue.fetch(0, 9, {1}))
    await turns()
    assert not fetching.done()
    queue.offer(0, b"honest", 2)
    assert [message.payload for message in await fetching] == [b"honest"]
    assert [message.payload for message in await queue.fetch(0, 9)] == [b"flood"]


async def test_open_packs_of_a_source_that_is_down_keep_no_other_peer_out():
    queue = MemoryQueue(1, packs_max=10, undone_max=90)
    await own(queue)
    while queue.offer(0, b"flood", 1):
        await queue.fetch(0, 9)
    assert queue.backlog(0) == 81
    assert queue.offer(0, b"honest", 2)


async def test_nothing_is_kept_of_a_peer_that_has_gone():
    queue = MemoryQueue(1)
    epoch = await own(queue)
    for _ in range(500):
        assert queue.offer(0, b"x", queue.newcomer())
        await finish(queue, epoch)
    assert not queue._inboxes[0]._fills


async def test_whoever_comes_again_is_one_of_as_many_peers_as_may_be_here_at_once(monkeypatch):
    monkeypatch.setattr(peers, "NUMBERS", 4)
    queue = MemoryQueue(1)
    stayed, seen = queue.newcomer("near"), set()
    for place in range(100):
        seen.add(number := queue.newcomer(place))
        queue.gone(number, place)
    assert len(seen) == 3
    assert stayed not in seen


async def test_whoever_comes_again_from_the_same_place_is_the_same_and_another_is_not():
    queue = MemoryQueue(1)
    stranger = queue.newcomer("there")
    queue.gone(stranger, "there")
    other = queue.newcomer("here")
    assert other != stranger
    for _ in range(5):
        assert queue.newcomer("there") == stranger
        second = queue.newcomer("there")
        assert second not in {stranger, other}
        queue.gone(second, "there")
        queue.gone(stranger, "there")


async def test_what_a_peer_has_left_counts_against_the_one_that_has_its_number_next(monkeypatch):
    monkeypatch.setattr(peers, "NUMBERS", 2)
    queue = MemoryQueue(1, packs_max=90)
    await own(queue)
    honest, taken = queue.newcomer(), 0
    for _ in range(200):
        flooding = queue.newcomer()
        taken += queue.offer(0, b"flood", flooding)
        queue.gone(flooding)
    assert taken == 81
    assert queue.offer(0, b"honest", honest)
