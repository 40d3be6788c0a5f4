"""When the collector forwards, in virtual time: the client's pace for all clients together, and nothing lost on the way."""

from __future__ import annotations

import asyncio
import sys

import pytest
from hints.collecting import World

from cacheupdater.testing import virtual_loop
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, Hello, partition_of
from cacheupdater_client.target import DRAIN_S, HURRY_S

MANY = 40


def story(told):
    """Runs a story with a world in virtual time."""

    def test():
        async def run():
            world = World()
            running = asyncio.ensure_future(world.forwarder.run(world, world.aside, lambda: 1))
            await asyncio.sleep(0)
            await told(world)
            running.cancel()

        virtual_loop.run(run())

    test.__name__, test.__doc__ = told.__name__, told.__doc__
    return test


@story
async def test_forwarder_asks_for_the_hello_though_nothing_waits(world):
    await asyncio.sleep(DRAIN_S)
    assert world.hellos == [Hello(1, [])]
    assert world.forwarder.connected


@story
async def test_the_queue_may_hear_for_how_many_clients_the_collector_stands_as_they_come_and_go(world):
    seen, peers = [], [world.gathered.newcomer() for _ in range(3)]
    for number, peer in enumerate((*peers, *peers)):
        world.gathered.stand(peer, 1) if number < len(peers) else world.gathered.gone(peer)
        await asyncio.sleep(DRAIN_S)
        seen.append(world.forwarder.outbox.clients)
    assert seen == [1, 2, 3, 2, 1, 1]


@story
async def test_reads_of_all_clients_within_a_turn_are_one_hint(world):
    for _ in range(5):
        for _ in range(MANY):
            world.hint(TOUCH, b"k")
        await asyncio.sleep(DRAIN_S)
    await asyncio.sleep(DRAIN_S)
    found = [pack for _, pack in world.queue.got]
    assert sum(pack.counts[0] for pack in found) == 5 * MANY
    assert len(found) <= 6


@story
async def test_a_change_leaves_at_once_and_the_next_within_ten_milliseconds(world):
    await asyncio.sleep(1.03)
    world.hint(CHANGE, b"a")
    await asyncio.sleep(0.001)
    world.hint(CHANGE, b"b")
    await asyncio.sleep(HURRY_S)
    [first, second] = [at for at, _ in world.queue.got]
    assert first == pytest.approx(1.03)
    assert second <= first + HURRY_S + 0.001


@story
async def test_an_awaited_miss_leaves_at_once_and_a_plain_one_with_the_turn(world):
    await asyncio.sleep(1.03)
    world.hint(MISS, b"plain")
    world.hint(MISS, b"awaited", tokens=[7])
    await asyncio.sleep(0.005)
    assert world.queue.keys(MISS) == [b"awaited"]
    await asyncio.sleep(DRAIN_S)
    assert world.queue.keys(MISS) == [b"awaited", b"plain"]


@story
async def test_changes_do_not_cut_the_turns_of_reads_short(world):
    """Else a busy machine would forward each read ten times as often."""
    for _ in range(100):
        world.hint(CHANGE, b"c")
        world.hint(TOUCH, b"t")
        await asyncio.sleep(HURRY_S)
    assert len(world.queue.keys(CHANGE)) > 50
    assert len(world.queue.keys(TOUCH)) <= 11


@story
async def test_a_change_is_acknowledged_ten_milliseconds_after_the_queue_has_it(world):
    await asyncio.sleep(1.03)
    peer = world.hint(CHANGE, b"c")
    await asyncio.sleep(0.001)
    assert world.gathered.owed(peer) == 1
    await asyncio.sleep(HURRY_S)
    assert world.gathered.owed(peer) == 0
    assert len(world.acknowledged_at) == 1


@story
async def test_a_change_is_owed_while_the_queue_is_away_and_arrives_after_its_return(world):
    await asyncio.sleep(1)
    world.queue.away = True
    peer = world.hint(CHANGE, b"c")
    reader = world.hint(TOUCH, b"t")
    await asyncio.sleep(60)
    assert (world.gathered.owed(peer), world.gathered.owed(reader)) == (1, 0)
    assert [each.event for each in world.notices.standing()] == ["queue_missing"]
    assert world.observer.levels["waiting", ""] == 2
    world.queue.away = False
    await asyncio.sleep(2 * DRAIN_S)
    assert world.gathered.owed(peer) == 0
    assert (world.queue.keys(CHANGE), world.queue.keys(TOUCH)) == ([b"c"], [b"t"])
    assert world.observer.levels["waiting", ""] == 0


@story
async def test_a_change_whose_frame_was_lost_on_the_way_is_owed_until_it_was_sent_again(world):
    await asyncio.sleep(1)
    world.queue.mute = True
    peer = world.hint(CHANGE, b"c")
    await asyncio.sleep(0.5)
    world.queue.away = True
    await asyncio.sleep(0.5)
    world.queue.said = Hello(3, [])  # another updater: frames are cut anew
    world.queue.away = world.queue.mute = False
    await asyncio.sleep(0.5)
    assert world.queue.keys(CHANGE) == [b"c", b"c"]
    assert world.gathered.owed(peer) == 0
    assert world.hellos == [Hello(1, []), Hello(3, [])]


@story
async def test_a_change_that_is_cut_anew_waits_for_its_new_frame(world):
    again = Hello(8, [])
    [first, later] = [key for key in map(b"k%d".__mod__, range(99)) if partition_of(key, 8) == 0][:2]
    other = next(key for key in map(b"k%d".__mod__, range(99)) if partition_of(key, 8) == 1)
    await asyncio.sleep(1)
    world.queue.mute = True
    peer = world.hint(CHANGE, first, other)
    await asyncio.sleep(0.5)
    world.queue.away = True
    await asyncio.sleep(0.5)
    world.hint(CHANGE, later)
    await asyncio.sleep(0.5)
    world.queue.said, world.queue.patience = again, 1  # acknowledges `first` and `later`, and not `other`
    world.queue.away = world.queue.mute = False
    await asyncio.sleep(0.5)
    assert world.observer.total("forwarded") == 2
    assert world.gathered.owed(peer) == 1
    world.queue.patience = sys.maxsize
    await asyncio.sleep(0.5)
    assert world.gathered.owed(peer) == 0


@story
async def test_changes_without_end_leave_every_ten_milliseconds(world):
    began = asyncio.get_running_loop().time()
    world.queue.away = True
    for _ in range(1000):
        world.hint(CHANGE, b"c")
        await asyncio.sleep(0.001)
    seconds = asyncio.get_running_loop().time() - began
    assert len(world.queue.turns) <= seconds / HURRY_S + seconds / DRAIN_S + 2


@story
async def test_a_quiet_collector_takes_a_turn_each_tenth_of_a_second(world):
    await asyncio.sleep(10)
    assert len(world.queue.turns) == pytest.approx(100, abs=2)


@story
async def test_a_collector_whose_queue_is_away_keeps_the_pace_of_a_quiet_one(world):
    world.queue.away = True
    world.hint(CHANGE, b"c")
    await asyncio.sleep(10)
    assert len(world.queue.turns) == pytest.approx(100, abs=3)


@story
async def test_hints_that_nobody_declares_are_counted_and_owed_to_nobody(world):
    world.queue.away = True
    await asyncio.sleep(DRAIN_S)
    world.queue.said = Hello(1, [b"p:"])
    peer = world.hint(CHANGE, b"q:1")
    world.queue.away = False
    await asyncio.sleep(3 * DRAIN_S)
    assert world.gathered.owed(peer) == 0
    assert world.observer.total("dropped", reason="undeclared") == 1


@story
async def test_the_books_balance(world):
    for number in range(200):
        world.hint(number % 3, b"k%d" % (number % 2))
        await asyncio.sleep(0.007)
    await asyncio.sleep(1)
    total = world.observer.total
    assert total("collected") == 200
    assert total("forwarded") + total("merged") == 200
    assert total("forwarded") == sum(len(pack.keys) for _, pack in world.queue.got)
    assert total("merged") > 50


def test_an_emptied_forwarder_ends_once_all_is_forwarded():
    async def run():
        world = World()
        world.hint(TOUCH, b"t")
        world.hint(CHANGE, b"c")
        world.forwarder.empty()
        await world.forwarder.run(world, world.aside, lambda: 1)
        assert asyncio.get_running_loop().time() < DRAIN_S
        assert (world.queue.keys(CHANGE), world.queue.keys(TOUCH)) == ([b"c"], [b"t"])
        assert world.forwarder.close() == 0

    virtual_loop.run(run())
