"""Outages of the queue with a spill, in virtual time and with real files: changes survive, and everything is bounded.

The files are in memory where the system allows it, for an fsync of a busy disk takes longer than the rest of a story.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sys
import tempfile
from pathlib import Path

import pytest
from hints.collecting import World

from cacheupdater.collector.gathered import READS_MAX, TOUCHES_MAX
from cacheupdater.collector.replay import UNDER_WAY_MAX
from cacheupdater.collector.spill import RETRY_S
from cacheupdater.core.spilling import AWAY_S, SIZE_MIN, Limits
from cacheupdater.errors import Unavailable
from cacheupdater.testing import virtual_loop
from cacheupdater_client.protocol.wire import (
    CHANGE,
    KEY_BYTES_MAX,
    MISS,
    PACK_HINTS_MAX,
    SET,
    TOUCH,
    Hello,
    Pack,
    partition_of,
)
from cacheupdater_client.target import DRAIN_S

AWAY = AWAY_S + 0.5
OUTAGE_S = 600  # the ten minutes of the acceptance, in virtual time: 6,000 turns that take seconds


MADE = []


class Running:
    """A world that runs, until it is killed."""

    def __init__(self, folder, limits=None, **queue):
        self.world = World(folder, limits, **queue)
        run = self.world.forwarder.run(self.world, self.world.aside, self.world.wall_ms)
        self._task = asyncio.ensure_future(run)
        MADE.append(self)

    def kill(self):
        """As kill -9 between two turns: nothing is written any more, and the lock is free."""
        self._task.cancel()
        self.world.spill.close()


@pytest.fixture
def folder():
    """Where the spill shall be."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="cacheupdater-", dir=memory) as name:
        yield Path(name) / "spill"
        while MADE:
            MADE.pop().world.spill.replay.close()  # a story may end in the middle of a segment


def story(told):
    """Runs a story in virtual time; it gets the directory of the spill."""

    def test(folder):
        virtual_loop.run(told(folder))

    test.__name__, test.__doc__ = told.__name__, told.__doc__
    return test


async def began(folder, limits=None, **queue):
    running = Running(folder, limits, **queue)
    await asyncio.sleep(1)
    return running, running.world


async def without_its_queue(folder, limits=None, **queue):
    """The same, and its queue counts as away now."""
    running, world = await began(folder, limits, **queue)
    world.queue.away = True
    await asyncio.sleep(AWAY)
    return running, world


def keys(count, first=0):
    return [b"k%d" % number for number in range(first, first + count)]


def segments(folder, kind="*"):
    return list(folder.glob(f"{kind}-*.segment"))


@story
async def test_a_collector_whose_queue_is_there_writes_nothing(folder):
    _, world = await began(folder)
    for number in range(100):
        world.hint(number % 3, b"k")
        await asyncio.sleep(0.02)
    assert segments(folder) == []
    assert world.observer.total("spilled") == 0


@story
async def test_changes_and_misses_are_acknowledged_while_the_queue_is_away_and_arrive_after_its_return(
    folder,
):
    _, world = await without_its_queue(folder)
    peer = world.hint(CHANGE, *keys(5))
    world.hint(MISS, b"m", peer=peer)
    world.hint(MISS, b"awaited", peer=peer, tokens=[7])
    world.hint(SET, b"set", peer=peer)
    await asyncio.sleep(2 * DRAIN_S)
    assert world.gathered.owed(peer) == 0
    assert world.observer.levels["spill_hints", ""] == 8
    assert world.observer.levels["spill_bytes", ""] == sum(each.stat().st_size for each in segments(folder))
    await asyncio.sleep(10)
    assert world.observer.levels["spill_age_seconds", ""] == pytest.approx(10, abs=0.5)
    assert world.queue.got == []
    world.queue.away = False
    await asyncio.sleep(AWAY)
    assert set(world.queue.keys(CHANGE)) == set(keys(5))
    assert set(world.queue.keys(MISS)) == {b"m", b"awaited"}
    assert world.queue.keys(SET) == [b"set"]
    assert [pack.tokens for _, pack in world.queue.got if b"awaited" in pack.keys] == [[7]]
    assert segments(folder) == []
    assert world.observer.levels["spill_hints", ""] == world.observer.levels["spill_bytes", ""] == 0
    assert world.observer.total("replayed") == 8


@story
async def test_a_change_that_waits_in_the_outbox_is_written_too_once_the_queue_counts_as_away(folder):
    running, world = await began(folder)
    world.queue.mute = True  # takes frames, and acknowledges nothing
    peer = world.hint(CHANGE, b"c")
    await asyncio.sleep(AWAY_S / 2)
    assert world.gathered.owed(peer) == 1
    await asyncio.sleep(AWAY)
    assert world.gathered.owed(peer) == 0
    running.kill()
    _, world = await began(folder)
    await asyncio.sleep(AWAY)
    assert world.queue.keys(CHANGE) == [b"c"]
    assert segments(folder) == []


@story
async def test_a_killed_collector_loses_no_change_that_it_has_acknowledged(folder):
    running, world = await without_its_queue(folder)
    peer = world.gathered.newcomer()
    for first in range(0, 3000, 1000):
        world.hint(CHANGE, *keys(1000, first), peer=peer)
    await asyncio.sleep(0.05)
    assert world.gathered.owed(peer) == 0
    running.kill()
    _, world = await began(folder, Limits(rate=100_000))
    await asyncio.sleep(1)
    assert set(world.queue.keys(CHANGE)) == set(keys(3000))
    assert segments(folder) == []


@story
async def test_a_collector_that_is_killed_in_its_replay_leaves_the_rest_to_the_next_one(folder):
    running, world = await without_its_queue(folder, Limits(rate=1000))
    for first in range(0, 5000, 500):
        world.hint(CHANGE, *keys(500, first))
        await asyncio.sleep(0.1)
    world.queue.away = False
    await asyncio.sleep(2)
    some = set(world.queue.keys(CHANGE))
    assert 0 < len(some) < 5000
    running.kill()
    running, world = await began(folder, Limits(rate=1000))
    await asyncio.sleep(6)
    assert some | set(world.queue.keys(CHANGE)) == set(keys(5000))
    assert segments(folder) == []


@story
async def test_a_segment_stays_until_the_queue_has_acknowledged_all_of_it(folder):
    running, world = await without_its_queue(folder)
    world.hint(CHANGE, *keys(3))
    await asyncio.sleep(DRAIN_S)
    world.queue.away, world.queue.mute = False, True  # takes frames, and may lose them
    await asyncio.sleep(0.5)
    assert world.queue.keys(CHANGE) == keys(3)
    assert len(segments(folder)) == 1
    running.kill()
    _, world = await began(folder)
    await asyncio.sleep(AWAY)
    assert world.queue.keys(CHANGE) == keys(3)
    assert segments(folder) == []


@story
async def test_a_segment_whose_packs_are_cut_anew_waits_for_all_of_the_new_frames(folder):
    [first, later] = [key for key in keys(99) if partition_of(key, 8) == 0][:2]
    other = next(key for key in keys(99) if partition_of(key, 8) == 1)
    _, world = await without_its_queue(folder)
    world.hint(CHANGE, first, other)
    await asyncio.sleep(DRAIN_S)
    world.queue.away, world.queue.mute = False, True
    await asyncio.sleep(AWAY_S / 2)
    world.queue.away = True
    world.hint(CHANGE, later)  # the queue does not count as away yet
    await asyncio.sleep(DRAIN_S)
    world.queue.said, world.queue.patience = (
        Hello(8, []),
        1,
    )  # acknowledges `first` and `later`, and not `other`
    world.queue.away = world.queue.mute = False
    await asyncio.sleep(3 * DRAIN_S)
    assert [set(pack.keys) for pack in world.queue.kept] == [{first, later}]
    assert len(segments(folder)) == 1
    world.queue.patience = sys.maxsize
    await asyncio.sleep(3 * DRAIN_S)
    assert segments(folder) == []


@story
async def test_a_replay_keeps_its_rate_and_fresh_changes_do_not_wait_for_it(folder):
    _, world = await without_its_queue(folder, Limits(rate=1000))
    for first in range(0, 10_000, 250):
        world.hint(CHANGE, *keys(250, first))
        await asyncio.sleep(0.05)
    world.queue.away = False
    await asyncio.sleep(1)
    already = len(world.queue.keys(CHANGE))
    for number in range(20):
        world.hint(CHANGE, b"fresh%d" % number)
        await asyncio.sleep(0.02)
        [at] = [
            pack.keys.index(b"fresh%d" % number)
            for _, pack in world.queue.got
            if b"fresh%d" % number in pack.keys
        ]
        assert at == 0
        await asyncio.sleep(0.08)
    replayed = len(world.queue.keys(CHANGE)) - already - 20
    assert 1500 <= replayed <= 2500


@story
async def test_a_queue_that_takes_a_replay_slowly_gets_no_more_than_a_part_of_it_at_once(folder):
    _, world = await without_its_queue(folder, Limits(rate=1_000_000))
    for first in range(0, 10_000, 500):
        world.hint(CHANGE, *keys(500, first))
        await asyncio.sleep(0.05)
    world.queue.away, world.queue.mute = False, True
    await asyncio.sleep(AWAY_S / 2)
    under_way, _ = world.forwarder.outbox.size
    assert 0 < under_way < UNDER_WAY_MAX + PACK_HINTS_MAX
    world.queue.mute = False
    await asyncio.sleep(AWAY)
    assert set(world.queue.keys(CHANGE)) == set(keys(10_000))


@story
async def test_the_oldest_change_comes_first_and_touches_come_last(folder):
    _, world = await without_its_queue(folder, Limits(rate=500, touches_s=60))
    fill_memory(world)
    await asyncio.sleep(DRAIN_S)
    world.hint(TOUCH, *keys(10, 900_000))
    await asyncio.sleep(2 * DRAIN_S)
    for number in range(20):
        world.hint(CHANGE, b"c%02d" % number)
        await asyncio.sleep(0.05)
    assert len(segments(folder, "touches")) == 1
    world.queue.away = False
    await asyncio.sleep(20)
    assert world.queue.keys(CHANGE) == [b"c%02d" % number for number in range(20)]
    assert set(world.queue.keys(TOUCH)) >= set(keys(10, 900_000))
    assert segments(folder) == []


def fill_memory(world):
    """As many touches as the outbox takes."""
    for number in range(TOUCHES_MAX // 1000):
        world.hint(TOUCH, *keys(1000, 1_000_000 + 1000 * number))
        world.gathered.hand_over(world.forwarder.outbox, all_kinds=True)


@story
async def test_touches_go_to_disk_only_when_the_memory_is_full_and_expire_there(folder):
    _, world = await without_its_queue(folder)
    world.hint(TOUCH, *keys(100))
    await asyncio.sleep(1)
    assert segments(folder) == []
    fill_memory(world)
    await asyncio.sleep(DRAIN_S)
    peer = world.hint(TOUCH, *keys(1000, 500_000))
    await asyncio.sleep(2 * DRAIN_S)
    assert world.observer.levels["spill_hints", ""] >= 1000
    assert world.gathered.owed(peer) == 0
    await asyncio.sleep(40)
    assert segments(folder) == []
    assert world.observer.total("spill_dropped", reason="expired") == world.observer.total("spilled")


@story
async def test_a_change_expires_after_its_time_and_is_counted(folder):
    _, world = await without_its_queue(folder, Limits(changes_s=200))
    world.hint(CHANGE, b"old")
    await asyncio.sleep(100)
    world.hint(CHANGE, b"new")
    await asyncio.sleep(101)
    assert world.observer.total("spill_dropped", reason="expired") == 1
    world.queue.away = False
    await asyncio.sleep(AWAY)
    assert world.queue.keys(CHANGE) == [b"new"]


@story
async def test_a_miss_in_a_segment_with_younger_changes_expires_alone(folder):
    _, world = await without_its_queue(folder)
    world.hint(MISS, b"m")
    world.hint(CHANGE, b"c")
    await asyncio.sleep(31)
    world.queue.away = False
    await asyncio.sleep(AWAY)
    assert (world.queue.keys(MISS), world.queue.keys(CHANGE)) == ([], [b"c"])
    assert world.observer.total("spill_dropped", reason="expired") == 1


@story
async def test_a_full_spill_drops_the_oldest_and_counts_each_hint(folder):
    _, world = await without_its_queue(folder, Limits(size=SIZE_MIN))
    sent = 0
    for number in range(150):
        some = [
            b"%08d" % each + b"x" * (KEY_BYTES_MAX - 8) for each in range(number * 200, number * 200 + 200)
        ]
        world.hint(CHANGE, *some)
        sent += 200
        await asyncio.sleep(0.02)
    await asyncio.sleep(1)
    dropped, left = (
        world.observer.total("spill_dropped", reason="full"),
        world.observer.levels["spill_hints", ""],
    )
    assert dropped > 0
    assert dropped + left == sent
    assert sum(each.stat().st_size for each in segments(folder)) <= SIZE_MIN
    world.queue.away = False
    await asyncio.sleep(10)
    arrived = world.queue.keys(CHANGE)
    assert len(set(arrived)) == left
    assert max(arrived).startswith(b"%08d" % (sent - 1))  # the youngest are kept


@pytest.mark.parametrize("call", ["write", "fsync", "open"])
def test_a_full_disk_costs_nothing_but_the_spill_and_is_said_once(folder, monkeypatch, caplog, call):
    real = getattr(os, call)
    full = True

    def fails(*args, **options):
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **options)

    async def told():
        nonlocal full
        _, world = await began(folder)
        world.queue.away = True
        await asyncio.sleep(AWAY)
        monkeypatch.setattr(os, call, fails)
        peer = world.hint(CHANGE, b"c")
        await asyncio.sleep(20)
        assert world.gathered.owed(peer) == 1  # as without a spill
        assert "spill_failed" in [each.event for each in world.notices.standing()]
        assert sum("spill_failed" in each.message for each in caplog.records) == 1
        full = False
        await asyncio.sleep(RETRY_S + DRAIN_S)
        assert world.gathered.owed(peer) == 0
        world.queue.away = False
        await asyncio.sleep(AWAY + 10)
        assert set(world.queue.keys(CHANGE)) == {b"c"}
        world.notices.tick()
        assert "spill_failed" not in [each.event for each in world.notices.standing()]

    virtual_loop.run(told())


@story
async def test_a_disk_that_stays_full_lets_no_memory_grow(folder):
    running, world = await without_its_queue(folder)
    fill_memory(world)
    world.files.append = refuse
    taken = 0
    for number in range(70):
        await asyncio.sleep(1)
        pack = Pack(TOUCH, 0, keys(1000, number * 1000), [])
        taken += world.gathered.take(pack, world.gathered.newcomer()) is not None
    assert 0 < taken * 1000 <= 2 * READS_MAX
    running.kill()


def refuse(*_, **__):
    raise Unavailable("the disk is full")


@story
async def test_damage_is_counted_and_the_rest_arrives(folder):
    running, world = await without_its_queue(folder)
    for number in range(20):
        world.hint(CHANGE, b"k%d" % number)
        await asyncio.sleep(0.05)
    running.kill()
    [segment] = segments(folder)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 4
    segment.write_bytes(data)
    _, world = await began(folder)
    await asyncio.sleep(AWAY)
    arrived = set(world.queue.keys(CHANGE))
    assert len(arrived) == 19
    assert arrived < set(keys(20))
    assert world.observer.total("spill_dropped", reason="damaged") == 1
    assert segments(folder) == []


@story
async def test_segments_that_cannot_be_read_are_counted_and_left_there(folder):
    folder.mkdir(mode=0o700)
    (folder / f"urgent-{5:016}-{'ab' * 8}.segment").mkdir()
    (folder / f"touches-{6:016}-{'ab' * 8}.segment").write_bytes(b"no record")
    _, world = await without_its_queue(folder)
    world.hint(CHANGE, b"c")
    await asyncio.sleep(1)
    world.queue.away = False
    await asyncio.sleep(AWAY)
    assert world.queue.keys(CHANGE) == [b"c"]
    assert world.observer.total("spill_dropped", reason="damaged") == 2
    assert [each.name[:6] for each in segments(folder)] == ["urgent"]


@story
async def test_another_number_of_partitions_does_not_matter_to_what_lies_on_disk(folder):
    _, world = await without_its_queue(folder)
    world.hint(CHANGE, *keys(300))
    await asyncio.sleep(1)
    world.queue.said = Hello(7, [])
    world.queue.away = False
    await asyncio.sleep(AWAY)
    assert set(world.queue.keys(CHANGE)) == set(keys(300))
    assert segments(folder) == []


@story
async def test_a_queue_that_goes_in_the_middle_of_a_replay_gets_the_rest_later(folder):
    _, world = await without_its_queue(folder, Limits(rate=1000))
    for first in range(0, 4000, 250):
        world.hint(CHANGE, *keys(250, first))
        await asyncio.sleep(0.05)
    for _ in range(5):
        world.queue.away = False
        await asyncio.sleep(0.8)
        world.queue.away = True
        await asyncio.sleep(AWAY)
    world.queue.away = False
    await asyncio.sleep(6)
    assert set(world.queue.keys(CHANGE)) == set(keys(4000))
    assert segments(folder) == []


@story
async def test_after_ten_minutes_without_a_queue_all_changes_arrive_at_the_rate_of_the_replay(folder):
    _, world = await began(folder, Limits(rate=2000))
    world.queue.away = True
    loop, sent = asyncio.get_running_loop(), 0
    ends = loop.time() + OUTAGE_S
    while loop.time() < ends:
        world.hint(CHANGE, *keys(10, sent))
        world.hint(TOUCH, *keys(20, sent % 50_000))
        sent += 10
        await asyncio.sleep(0.5)
    assert world.observer.levels["spill_age_seconds", ""] == pytest.approx(OUTAGE_S, abs=5)
    world.queue.away = False
    await asyncio.sleep(sent / 2000 - 1)
    assert segments(folder)  # not faster than its rate
    await asyncio.sleep(sent / 4000 + 5)
    assert segments(folder) == []
    assert set(world.queue.keys(CHANGE)) == set(keys(sent))
    assert world.observer.total("spill_dropped") == 0


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_a_change_that_was_acknowledged_arrives(folder, seed):
    """Outages, stalls, kills and a full disk in any order; then peace."""
    print(f"seed {seed}: pytest {__file__} -k 'whatever_happens and {seed}'")
    arrived, acknowledged = virtual_loop.run(anything(folder, random.Random(seed)))
    assert acknowledged
    assert acknowledged <= arrived


async def anything(folder, rng):
    """The changes that arrived, and those whose frames were acknowledged."""
    arrived, acknowledged, owed, number = set(), set(), [], 0
    running, world = await began(folder, Limits(rate=2000))
    append = world.files.append

    def end():
        acknowledged.update(*(some for peer, some in owed if not world.gathered.owed(peer)))
        arrived.update(*(pack.keys for pack in world.queue.kept if pack.kind == CHANGE))
        running.kill()
        owed.clear()

    for _ in range(60):
        event = rng.choice(["away", "back", "mute", "full", "hint", "hint", "hint", "kill"])
        if event == "hint":
            some = keys(rng.randint(1, 400), number)
            number += len(some)
            world.hint(TOUCH, *some)
            owed.append((world.hint(CHANGE, *some), some))
        elif event == "kill":
            end()
            running, world = await began(folder, Limits(rate=2000))
            append = world.files.append
        else:
            world.files.append = refuse if event == "full" else append
            world.queue.away, world.queue.mute = event in {"away", "full"}, event == "mute"
            world.queue.said = Hello(rng.choice([1, 3, 7]), [])
        await asyncio.sleep(rng.choice([0, 0.005, 0.1, AWAY]))
    world.queue.away = world.queue.mute = False
    world.files.append = append
    await asyncio.sleep(30)
    assert segments(folder) == []
    assert not any(world.gathered.owed(peer) for peer, _ in owed)
    end()
    return arrived, acknowledged
