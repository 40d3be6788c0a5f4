"""The simulated consumer group behaves like a real one: rebalances, generations and instance ids, as members see them.

Members are the ports of updaters without the updaters: the tests read the assignments themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from types import SimpleNamespace

from simulated.group import Group, GroupConsumer
from simulated.history import Seen
from simulated.plan import GroupPlan
from simulated.process import Process, task_factory
from simulated.topic import SESSION_S

from cacheupdater.testing.virtual_loop import VirtualLoop
from cacheupdater_client.protocol.wire import TOUCH, encode_pack

REBALANCE_S = 2.0
SOON_S = 0.2  # heartbeats, joins and hand-overs of members that live
PACK = encode_pack(TOUCH, 0, [b"a:1"], ())


class Dice(Counter):
    """No faults: it only counts events."""

    def __call__(self, kind):
        return False

    @property
    def fired(self):
        return self


class World:
    """The part of a world that a group needs."""

    def __init__(self, partitions):
        self.random = Random(1)
        self.faults = Dice()
        self.seen = Seen(asyncio.get_running_loop().time)
        self.plan = SimpleNamespace(group=GroupPlan(static=False, rebalance=REBALANCE_S))
        self.cursors = {}
        self.group = Group(partitions, self)

    def latency(self):
        return 0.001

    def slow(self, between):
        return between[0]

    def check_room(self, consumer, partition):
        """Always enough."""


class Member:
    """One updater's queue, and its gained and lost partitions in order."""

    def __init__(self, world, name, instance=None, *, settles=True):
        self.process = Process(name)
        self.queue = GroupConsumer(world.group, self.process, world, instance)
        self.told = []
        self.owned = {}  # partition -> epoch
        self._settles = settles
        self.process.start(self._follow())

    async def _follow(self):
        async for change in self.queue.assignments():
            self.told.append(("lost", change.lost) if change.lost else ("gained", change.gained))
            if change.lost and self._settles:
                change.settled()
            for partition in change.lost:
                del self.owned[partition]
            self.owned |= {gained.partition: gained.epoch for gained in change.gained}

    @property
    def losses(self):
        return [what for kind, what in self.told if kind == "lost"]

    async def commit(self, partition, done):
        await self.queue.commit(partition, epoch=self.owned[partition], done=done)


def simulated(test):
    """Run this test in virtual time."""

    def run():
        loop = VirtualLoop()
        loop.set_task_factory(task_factory)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@simulated
async def test_group_gives_everything_up_and_out_again_when_somebody_joins():
    world = World(4)
    first = Member(world, "first")
    await asyncio.sleep(SOON_S)
    assert sorted(first.owned) == [0, 1, 2, 3]
    second = Member(world, "second")
    await asyncio.sleep(SOON_S)
    assert first.losses == [(0, 1, 2, 3)]
    assert sorted([*first.owned, *second.owned]) == [0, 1, 2, 3]
    assert len(first.owned) == len(second.owned) == 2
    assert set(first.owned.values()) == {2}, "a new ownership of the same partition is a new epoch"


@simulated
async def test_group_takes_commits_of_its_present_generation_only():
    world = World(1)
    first = Member(world, "first", settles=False)
    await asyncio.sleep(SOON_S)
    await first.commit(0, 3)
    assert world.group.done == [3]
    first.process.stop()
    second = Member(world, "second")
    await asyncio.sleep(SESSION_S)
    world.group.expel(first.queue)
    await asyncio.sleep(SOON_S)
    assert list(second.owned) == [0]
    await second.commit(0, 5)
    late = first.process.start(first.commit(0, 4))
    first.process.resume()
    await late
    assert world.group.done == [5], "a zombie's commit is ignored, and raises nothing"
    assert first.losses == [(0,)]
    await asyncio.sleep(REBALANCE_S)
    assert sorted([*first.owned, *second.owned]) == [0], "it has joined again"
    assert world.group.generation == 3


@simulated
async def test_group_throws_out_who_does_not_join_in_time():
    world = World(2)
    first = Member(world, "first")
    await asyncio.sleep(SOON_S)
    first.process.stop()
    second = Member(world, "second")
    await asyncio.sleep(REBALANCE_S / 2)
    assert not second.owned
    await asyncio.sleep(REBALANCE_S / 2 + SOON_S)
    assert sorted(second.owned) == [0, 1]
    assert world.faults["thrown_out"] == 1
    first.process.resume()
    await asyncio.sleep(SOON_S)
    assert len(first.owned) == len(second.owned) == 1


@simulated
async def test_group_does_not_wait_for_a_service_that_never_settles():
    world = World(2)
    first = Member(world, "first", settles=False)
    await asyncio.sleep(SOON_S)
    second = Member(world, "second")
    await asyncio.sleep(REBALANCE_S)
    assert len(first.owned) == len(second.owned) == 1
    assert not world.faults["thrown_out"]


@simulated
async def test_static_member_is_back_within_its_session_and_nobody_notices():
    world = World(2)
    members = [Member(world, name, instance=name) for name in ("first", "second")]
    await asyncio.sleep(SOON_S)
    first, second = members
    told = list(second.told)
    [mine] = first.owned
    await first.commit(mine, 7)
    await first.queue.close()
    await asyncio.sleep(SESSION_S / 2)
    again = Member(world, "again", instance="first")
    await asyncio.sleep(2 * SESSION_S)
    assert second.told == told
    assert [gained[:1] + gained[2:] for _, what in again.told for gained in what] == [(mine, 7)]
    assert world.faults == {"static_return": 1}


@simulated
async def test_static_member_that_stays_away_loses_its_partitions():
    world = World(2)
    first, second = (Member(world, name, instance=name) for name in ("first", "second"))
    await asyncio.sleep(SOON_S)
    await first.queue.close()
    await asyncio.sleep(SESSION_S + SOON_S)
    assert sorted(second.owned) == [0, 1]
    Member(world, "again", instance="first")
    await asyncio.sleep(SOON_S)
    assert len(second.owned) == 1
    assert world.faults == {"static_late": 1}


@simulated
async def test_group_forgets_the_last_commit_and_the_next_owner_starts_before_it():
    world = World(1)
    member = Member(world, "member")
    await asyncio.sleep(SOON_S)
    await member.commit(0, 3)
    await member.commit(0, 5)
    world.group.forget_commits()
    world.group.move()
    await asyncio.sleep(SOON_S)
    assert member.told[-1][1][0].offset == 3


@simulated
async def test_group_counts_what_vanished_before_it_was_read():
    world = World(1)
    for _ in range(5):
        world.group.accept(0, PACK)
    world.group.starts[0] = 3
    member = Member(world, "member")
    await asyncio.sleep(SOON_S)
    messages = await member.queue.fetch(0, 10)
    assert [message.offset for message in messages] == [3, 4]
    assert [(lost.first, lost.end) for lost in world.seen.expired] == [(0, 3)]


@simulated
async def test_group_hands_out_new_partitions_from_their_beginning():
    world = World(1)
    member = Member(world, "member")
    await asyncio.sleep(SOON_S)
    world.group.grow()
    world.group.accept(1, PACK)
    await asyncio.sleep(SOON_S)
    assert sorted(member.owned) == [0, 1]
    [message] = await member.queue.fetch(1, 10)
    assert message.offset == 0


@simulated
async def test_group_begins_anew_with_a_new_generation_and_takes_nothing_of_the_old():
    world = World(1)
    world.group.accept(0, PACK)
    member = Member(world, "member", settles=False)
    await asyncio.sleep(SOON_S)
    await member.commit(0, 1)
    world.group.begin_anew()
    await asyncio.sleep(REBALANCE_S)
    world.group.accept(0, PACK)
    [message] = await member.queue.fetch(0, 10)
    assert (message.offset, world.group.done) == (0, [0])
    await member.queue.commit(0, epoch=1, done=1)
    assert world.group.done == [0]
    assert [hint.topic for hint in world.seen.hints] == [0, 1]


@simulated
async def test_group_judges_a_hand_over_by_what_was_finished_and_committed():
    world = World(1)
    member = Member(world, "member")
    await asyncio.sleep(SOON_S)
    owner = member.queue.owner(0, member.owned[0])
    world.cursors[owner] = SimpleNamespace(advance=lambda: 4)
    await member.commit(0, 3)
    world.group.move()
    await asyncio.sleep(SOON_S)
    assert [(each.done, each.said) for each in world.seen.hand_overs] == [(4, 3)]
