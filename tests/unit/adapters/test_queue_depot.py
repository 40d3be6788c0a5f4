"""Members that share a depot hand partitions over without losing packs, through kills, outages and lost answers. Time is virtual."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from cacheupdater.adapters.queue_depot import DepotQueue
from cacheupdater.adapters.queue_depot.commits import Commits
from cacheupdater.adapters.queue_depot.inbox import ALL_BYTES_MAX, bytes_max
from cacheupdater.adapters.queue_depot.lane import PACKS_MAX
from cacheupdater.adapters.queue_depot.ownership import SETTLE, Ownership
from cacheupdater.core.membership import rightful
from cacheupdater.depot_ports import Claimed, Progress
from cacheupdater.errors import Faulty, Stuck, Unavailable
from cacheupdater.testing import virtual_loop
from cacheupdater.testing.memory_depot import MemoryDepot, MemoryTables
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol.wire import CHANGE, MISS, encode_pack

SESSION = 5.0
NEVER = 100.0  # s: what has not happened by then does not happen


class Told:
    """`ports.Troubles`: those that last, by kind."""

    def __init__(self):
        self.lasting, self.ever = set(), set()

    def trouble(self, event, subject, text):
        assert text
        self.lasting.add((event, subject))
        self.ever.add(event)

    def over(self, event, subject):
        self.lasting.discard((event, subject))


class Calls(MemoryDepot):
    """Counts the calls by name. `breaks` is raised by renewals; `hangs` are the names of calls that are never answered."""

    def __init__(self, tables):
        super().__init__(tables)
        self.names = []
        self.breaks = None
        self.hangs = set()

    def __getattribute__(self, name):
        if name in {"renew", "claim", "release", "read", "commit", "put_back"}:
            self.names.append(name)
            if name == "renew" and self.breaks:
                raise self.breaks
            if name in self.hangs:
                return lambda *_: asyncio.Event().wait()
        return super().__getattribute__(name)


class Member:
    """One updater's queue and a reader of its assignments."""

    def __init__(self, tables, name, *, settles=True, session=SESSION):
        self.name, self.observer, self.notices = name, RecordingObserver(), Told()
        self.depot = Calls(tables)
        self.ahead, self.rate = 0.0, 1.0  # of its clock: a process that was stopped finds its clock moved
        self.queue = DepotQueue(
            self.depot,
            session=session,
            member=name,
            observer=self.observer,
            notices=self.notices,
            clock=lambda: self.ahead + self.rate * asyncio.get_running_loop().time(),
        )
        self.owned, self.gained, self.lost = {}, [], []  # Gained by partition; all gains; all losses
        self.unsettled = []
        self._settles = settles
        self.following = asyncio.ensure_future(self._follow())

    async def _follow(self):
        await self.queue.start()
        async for change in self.queue.assignments():
            self.lost += change.lost
            self.gained += change.gained
            for partition in change.lost:
                del self.owned[partition]
            self.owned |= {gained.partition: gained for gained in change.gained}
            if self._settles:
                change.settled()
            else:
                self.unsettled.append(change.settled)

    def kill(self):
        """As by SIGKILL: nothing is said to the depot any more."""
        self.depot.down = "before"
        self.following.cancel()
        for task in self.queue._tasks:  # no method ends a queue without a word
            task.cancel()

    async def take(self, partition, count):
        got = []
        while len(got) < count:
            got += await self.queue.fetch(partition, count - len(got))
        return got

    async def finish(self, partition, messages):
        await self.queue.commit(partition, epoch=self.owned[partition].epoch, done=messages[-1].offset + 1)

    async def close(self):
        await self.queue.close()
        with suppress(asyncio.CancelledError):
            await self.following


def simulated(partitions):
    """Run this test in virtual time, on tables with so many partitions."""

    def decorate(test):
        def run():
            async def main():
                await test(MemoryTables(partitions, asyncio.get_running_loop().time))

            virtual_loop.run(main())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


async def until(holds, within=NEVER):
    """The seconds until this holds."""
    clock = asyncio.get_running_loop().time
    began = clock()
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110  what is waited for is a sentence about several objects, and time is virtual
            await asyncio.sleep(0.01)
    return clock() - began


def payloads(messages):
    return [message.payload for message in messages]


# --- ownership ----------------------------------------------------------------------------------------------------------


@simulated(12)
async def test_members_share_the_partitions_as_the_rules_say_and_others_keep_theirs(tables):
    ann, bob = Member(tables, "ann"), Member(tables, "bob")
    await until(lambda: len(ann.owned) + len(bob.owned) == 12)
    await asyncio.sleep(2)
    owners = dict.fromkeys(ann.owned, "ann") | dict.fromkeys(bob.owned, "bob")
    assert owners == {p: rightful(p, ["ann", "bob"]) for p in range(12)}
    before = {**ann.owned, **bob.owned}
    eve = Member(tables, "eve")
    mine = {p for p in range(12) if rightful(p, ["ann", "bob", "eve"]) == "eve"}
    assert await until(lambda: eve.owned.keys() == mine) < 2.0
    await asyncio.sleep(2)
    assert {**ann.owned, **bob.owned} == {p: before[p] for p in before if p not in mine}
    await eve.close()
    await until(lambda: ann.owned.keys() | bob.owned.keys() == before.keys())
    assert {p for p, gained in {**ann.owned, **bob.owned}.items() if gained != before[p]} == mine
    for each in (ann, bob):
        await each.close()


@simulated(2500)
async def test_thousands_of_partitions_are_claimed_part_by_part_and_without_a_rest(tables):
    ann = Member(tables, "ann")
    assert await until(lambda: len(ann.owned) == 2500) < 0.1
    assert ann.depot.names.count("claim") == ann.depot.names.count("renew") == 3
    await ann.close()


@simulated(4)
async def test_a_takeover_after_a_kill_takes_a_session_and_a_second_at_the_most(tables):
    for moment in range(9):
        ann, bob = Member(tables, "ann"), Member(tables, "bob")
        await until(lambda: len(ann.owned) + len(bob.owned) == 4)  # noqa: B023  it is called at once
        await asyncio.sleep(moment / 10)
        ann.kill()
        assert await until(lambda: len(bob.owned) == 4) <= SESSION + 1.0  # noqa: B023
        await bob.close()


@simulated(4)
async def test_a_member_that_closes_hands_over_at_its_end(tables):
    ann, bob = Member(tables, "ann"), Member(tables, "bob")
    await until(lambda: ann.owned and bob.owned)
    await ann.close()
    assert await until(lambda: len(bob.owned) == 4) < 1.0
    await bob.close()


@simulated(1)
async def test_of_members_with_one_partition_exactly_one_works_and_the_other_takes_over(tables):
    members = [Member(tables, "ann"), Member(tables, "bob")]
    await until(lambda: members[0].owned or members[1].owned)
    await asyncio.sleep(NEVER)
    [working] = [each for each in members if each.owned]
    [standby] = [each for each in members if not each.owned]
    working.kill()
    assert await until(lambda: standby.owned) <= SESSION + 1.0
    await standby.close()


@simulated(2)
async def test_what_was_not_finished_comes_again_with_the_next_owner_and_nothing_else(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 2)
    await ann.depot.put([(0, b"1"), (0, b"2"), (0, b"3")])
    first, _, third = await ann.take(0, 3)
    await ann.queue.commit(0, epoch=ann.owned[0].epoch, done=first.offset + 1, finished=[third.offset])
    ann.kill()
    bob = Member(tables, "bob")
    await until(lambda: len(bob.owned) == 2)
    await bob.depot.put([(0, b"4")])
    assert payloads(await bob.take(0, 2)) == [b"2", b"4"]
    await bob.close()


@simulated(8)
async def test_a_partition_moves_when_its_hand_over_has_settled_and_its_commits_count_until_then(tables):
    ann = Member(tables, "ann", settles=False)
    await until(lambda: len(ann.owned) == 8)
    epochs = {p: gained.epoch for p, gained in ann.owned.items()}
    await ann.depot.put([(p, pack) for p in range(8) for pack in (b"1", b"2")])
    fetched = {p: await ann.take(p, 1) for p in range(8)}
    bob = Member(tables, "bob")
    await until(lambda: ann.lost)
    fetching = asyncio.ensure_future(ann.queue.fetch(ann.lost[0], 1))
    await asyncio.sleep(SETTLE / 2)
    assert not bob.owned
    assert not fetching.done(), "packs that nobody has fetched are for the next owner"
    for partition in ann.lost:
        await ann.queue.commit(partition, epoch=epochs[partition], done=fetched[partition][0].offset + 1)
    for settled in ann.unsettled:
        settled()
    await until(lambda: bob.owned.keys() == set(ann.lost))
    assert all(gained.offset == fetched[p][0].offset + 1 for p, gained in bob.owned.items())
    for each in (ann, bob):
        await each.close()


@simulated(8)
async def test_a_hand_over_that_never_settles_holds_nobody_up_for_long(tables):
    ann = Member(tables, "ann", settles=False)
    await until(lambda: len(ann.owned) == 8)
    bob = Member(tables, "bob")
    await until(lambda: ann.lost)
    assert await until(lambda: bob.owned.keys() == set(ann.lost)) < SETTLE + 2.0
    await asyncio.sleep(NEVER)
    assert bob.owned.keys() == set(ann.lost)
    for each in (ann, bob):
        await each.close()


@simulated(2)
async def test_a_refused_commit_is_the_end_of_its_partition_and_of_no_other(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 2)
    await ann.depot.put([(0, b"1"), (1, b"1")])
    messages = {p: await ann.take(p, 1) for p in (0, 1)}
    stolen = MemoryDepot(tables)
    await stolen.renew("thief", SESSION)
    tables.shelves[0].owner = None  # by a person, at the depot
    [taken] = await stolen.claim("thief", [0])
    await stolen.leave("thief")
    await ann.finish(0, messages[0])
    await ann.finish(1, messages[1])
    await asyncio.sleep(0)
    assert ann.lost == [0]
    assert ann.observer.total("commit_failures", reason="rebalance") == 1
    await until(lambda: 0 in ann.owned)
    assert ann.owned[0].epoch > taken.epoch
    assert payloads(await ann.take(0, 1)) == [b"1"]
    assert tables.shelves[1].done == messages[1][0].offset + 1
    await ann.close()


@simulated(2)
async def test_a_partition_that_is_not_ours_by_the_roster_is_lost_at_once(tables):
    ann = Member(tables, "ann", settles=False)
    await until(lambda: len(ann.owned) == 2)
    await ann.depot.put([(0, b"1")])
    [message] = await ann.take(0, 1)
    epoch = ann.owned[0].epoch
    tables.shelves[0].owner = None
    tables.renew("thief", SESSION)
    tables.claim("thief", [0])
    tables.leave("thief")
    await until(lambda: 0 in ann.lost)
    await ann.queue.commit(0, epoch=epoch, done=message.offset + 1)
    assert "commit" not in ann.depot.names
    await asyncio.sleep(1)
    assert ann.queue._owned.held[0].epoch == epoch, "nothing is claimed again before the hand-over"
    for settled in ann.unsettled:
        settled()
    await until(lambda: 0 in ann.owned)
    assert "release" not in ann.depot.names
    await ann.close()


@simulated(1)
async def test_what_is_said_of_an_older_epoch_does_not_end_a_newer_one(tables):
    owned = Ownership("ann", wake=lambda: None)
    owned.gain([Claimed(0, 1, 1)])
    owned.lose([0])
    owned.changes.get_nowait()
    late = owned.changes.get_nowait()
    await asyncio.sleep(SETTLE + 1)
    owned.gain([Claimed(0, 3, 1)])
    late.settled()
    assert owned.refused([(0, 1), (7, 1)]) == 0
    assert owned.held[0].accepts(3)
    assert owned.refused([(0, 3)]) == 1
    owned.close()


@simulated(3)
async def test_a_hand_over_to_ourselves_leaves_other_members_and_partitions_alone(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 3)
    before = dict(ann.owned)
    await ann.depot.put([(1, b"1")])
    [message] = await ann.take(1, 1)
    ann.queue.reassign([1, 7])
    assert await until(lambda: 1 in ann.lost and 1 in ann.owned) < 0.1, "nothing waits for the next renewal"
    assert ann.lost == [1]
    assert "release" not in ann.depot.names, "nobody else could have had it meanwhile"
    assert ann.owned[1].epoch > before[1].epoch
    await ann.queue.commit(1, epoch=before[1].epoch, done=message.offset + 1)
    assert payloads(await ann.take(1, 1)) == [b"1"]
    assert (ann.owned[0], ann.owned[2]) == (before[0], before[2])
    await ann.close()


# --- putting back -------------------------------------------------------------------------------------------------------


@simulated(1)
async def test_an_owner_puts_packs_back_and_reads_them_at_the_places_that_it_was_told(tables):
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    tables.put([(0, b"a"), (0, b"b"), (0, A_CHANGE)])
    assert [each.place for each in await ann.take(0, 3)] == [1, 0, 0], "one is urgent"
    where = await ann.queue.put_back(0, epoch=ann.owned[0].epoch, packs=[b"c", b"d"])
    messages = await ann.take(0, 2)
    assert (payloads(messages), [each.place for each in messages]) == ([b"c", b"d"], list(where))
    assert [each.offset for each in messages] == [4, 5]
    await ann.close()


@simulated(1)
async def test_nothing_is_put_back_for_an_epoch_that_is_over_and_a_depot_that_hangs_is_given_up(tables):
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    assert await ann.queue.put_back(0, epoch=ann.owned[0].epoch - 1, packs=[b"c"]) is None
    ann.depot.hangs = {"put_back"}
    with pytest.raises(Unavailable):
        await ann.queue.put_back(0, epoch=ann.owned[0].epoch, packs=[b"c"])
    ann.kill()
    assert tables.read({0: 0, ~0: 0}, 10) == {}


# --- lanes ------------------------------------------------------------------------------------------------------------

A_CHANGE, A_MISS = (encode_pack(kind, 1, [b"p:1"]) for kind in (CHANGE, MISS))


def changes(count):
    return [encode_pack(CHANGE, 1, [b"p:%d" % number]) for number in range(count)]


@simulated(1)
async def test_urgent_packs_are_fetched_first_and_touches_fill_the_rest(tables):
    tables.put([(0, b"%d" % number) for number in range(5)] + [(0, A_CHANGE), (0, A_MISS)])
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    messages = await ann.queue.fetch(0, 4)
    assert payloads(messages) == [A_CHANGE, A_MISS, b"0", b"1"]
    tables.put([(0, A_CHANGE)])
    await asyncio.sleep(1)
    messages += await ann.queue.fetch(0, 4)
    assert payloads(messages[4:]) == [A_CHANGE, b"2", b"3", b"4"]
    assert [each.offset for each in messages] == list(range(1, 9))
    await ann.finish(0, messages)
    assert (tables.shelves[0].done, tables.urgent[0].done) == (6, 4)
    await ann.close()


@simulated(1)
async def test_a_change_is_read_past_an_inbox_that_is_full_of_touches(tables):
    tables.put([(0, b"%d" % number) for number in range(5 * PACKS_MAX)])
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    await asyncio.sleep(NEVER)
    tables.put([(0, A_CHANGE)])
    await asyncio.sleep(1)
    assert payloads(await ann.queue.fetch(0, 2)) == [A_CHANGE, b"0"]
    await ann.close()


@simulated(1)
async def test_a_touch_that_stays_holds_up_no_urgent_pack_and_a_change_that_stays_no_touch(tables):
    tables.put([(0, b"0"), (0, b"1"), *((0, each) for each in changes(3))])
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    first, second, third, fourth, fifth = await ann.take(0, 5)
    epoch = ann.owned[0].epoch
    await ann.queue.commit(0, epoch=epoch, done=first.offset, finished=[second.offset, fourth.offset])
    assert (tables.urgent[0].done, list(tables.urgent[0].packs)) == (1, [1, 3])
    assert (tables.shelves[0].done, list(tables.shelves[0].packs)) == (2, [2])
    await ann.queue.commit(0, epoch=epoch, done=fourth.offset, finished=[])
    assert (tables.urgent[0].done, list(tables.urgent[0].packs)) == (4, [])
    assert third.offset < fifth.offset
    ann.kill()
    bob = Member(tables, "bob")
    await until(lambda: bob.owned)
    assert payloads(await bob.take(0, 1)) == [b"1"]
    assert bob.owned[0].offset == 2 + 4 - 1
    await bob.close()


@simulated(1)
async def test_what_a_lost_commit_said_is_said_again(tables):
    tables.put([(0, b"0"), *((0, each) for each in changes(3))])
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    first, second, third, _ = await ann.take(0, 4)
    ann.depot.down = "before"
    for _ in range(2):
        with suppress(Unavailable):
            await ann.queue.commit(0, epoch=1, done=first.offset, finished=[second.offset, third.offset])
        ann.depot.down = ""
    assert list(tables.urgent[0].packs) == [1]
    await ann.queue.commit(0, epoch=1, done=third.offset + 1)
    assert (list(tables.urgent[0].packs), list(tables.shelves[0].packs)) == ([], [1])
    await ann.close()


@simulated(1)
async def test_a_lane_of_which_nothing_is_new_is_not_committed(tables):
    ann, said = Member(tables, "ann"), []
    commit = MemoryDepot.commit

    async def heard(member, progress):
        said.append({lane: (each.scan, each.done) for lane, each in progress.items()})
        return await commit(ann.depot, member, progress)

    ann.depot.commit = heard
    await until(lambda: ann.owned)
    tables.put([(0, A_CHANGE)])
    await ann.finish(0, await ann.take(0, 1))
    tables.put([(0, b"0")])
    messages = await ann.take(0, 1)
    await ann.finish(0, messages)
    await ann.finish(0, messages)
    assert said == [{~0: (2, 2)}, {0: (2, 2)}]
    await ann.close()


# --- a depot that fails -----------------------------------------------------------------------------------------------


@simulated(3)
async def test_work_goes_on_while_the_depot_is_away_for_less_than_a_session(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 3)
    await ann.depot.put([(0, b"1")])
    messages = await ann.take(0, 1)
    ann.depot.down = "before"
    with pytest.raises(Unavailable):
        await ann.finish(0, messages)
    await asyncio.sleep(SESSION / 2)
    assert ann.notices.lasting == {("queue_missing", ""), ("fetch_failed", "")}
    ann.depot.down = ""
    await ann.finish(0, messages)
    await asyncio.sleep(SESSION)
    assert not ann.notices.lasting
    assert not ann.lost
    await ann.depot.put([(0, b"2")])
    assert payloads(await ann.take(0, 1)) == [b"2"]
    await ann.close()


@pytest.mark.parametrize("down", ["before", "after", "hangs"])
def test_all_is_lost_when_the_session_is_over_and_comes_back_under_new_epochs(down):
    @simulated(3)
    async def run(tables):
        ann = Member(tables, "ann")
        await until(lambda: len(ann.owned) == 3)
        await ann.depot.put([(0, b"1"), (0, b"2")])
        messages = await ann.take(0, 1)
        old = dict(ann.owned)
        if down == "hangs":
            ann.depot.hangs = {"renew"}
        else:
            ann.depot.down = down
        assert SESSION - 1.0 < await until(lambda: len(ann.lost) == 3) <= SESSION + 0.05
        fetching = asyncio.ensure_future(ann.queue.fetch(0, 9))
        await ann.queue.commit(0, epoch=old[0].epoch, done=messages[0].offset + 1)
        await asyncio.sleep(NEVER)
        assert not fetching.done()
        ann.depot.down, ann.depot.hangs = "", set()
        await until(lambda: len(ann.owned) == 3)
        assert all(ann.owned[p].epoch > old[p].epoch for p in range(3))
        assert payloads(await fetching) == [b"1", b"2"]
        await ann.close()

    run()


@pytest.mark.parametrize("first", ["commit", "fetch"])
def test_a_process_that_was_stopped_for_a_session_neither_commits_nor_serves_what_it_had_read(first):
    @simulated(1)
    async def run(tables):
        ann = Member(tables, "ann")
        await until(lambda: ann.owned)
        await ann.depot.put([(0, b"1"), (0, b"2")])
        messages = await ann.take(0, 1)
        await until(lambda: ann.queue._inboxes[0].unread)
        old = ann.owned[0].epoch
        ann.ahead += SESSION + 1
        if first == "commit":
            await ann.queue.commit(0, epoch=old, done=messages[0].offset + 1)
            assert "commit" not in ann.depot.names
        else:
            assert payloads(await ann.queue.fetch(0, 1)) == [b"1"], "by the next owner, which we are again"
            assert ann.owned[0].epoch > old
        await ann.close()

    run()


@simulated(1)
async def test_a_clock_that_runs_slowly_keeps_nobody_busy(tables):
    ann = Member(tables, "ann")
    ann.rate = 0.5
    await until(lambda: ann.owned)
    ann.depot.hangs = {"renew"}
    calls = len(ann.depot.names)
    await asyncio.sleep(NEVER)
    assert ann.lost
    assert ann.depot.names[calls:].count("renew") < NEVER / (SESSION / 2) + 5
    await ann.close()


@pytest.mark.parametrize(("stopped_in", "asked"), [("renew", 1), ("claim", 2)])
def test_a_process_that_was_stopped_while_it_asked_gains_nothing_by_the_late_answer(stopped_in, asked):
    @simulated(2)
    async def run(tables):
        ann = Member(tables, "ann")
        plain = getattr(ann.depot, stopped_in)
        ann.depot.names.clear()

        async def stopped(*args):
            answer = await plain(*args)
            if ann.ahead == 0.0:
                ann.ahead = SESSION + 1
            return answer

        setattr(ann.depot, stopped_in, stopped)
        await until(lambda: len(ann.owned) == 2)
        assert ann.depot.names.count("claim") == asked
        assert not ann.lost
        assert {gained.epoch for gained in ann.owned.values()} == {asked}
        await ann.close()

    run()


@simulated(1)
async def test_answers_that_take_long_make_no_session_longer(tables):
    ann, takes = Member(tables, "ann"), 1.5
    await until(lambda: ann.owned)
    plain = ann.depot.renew

    async def late(member, session):
        roster = await plain(member, session)
        await asyncio.sleep(takes)
        return roster

    ann.depot.renew = late
    await asyncio.sleep(NEVER)
    assert not ann.lost
    ann.depot.down = "before"
    began = tables.sessions["ann"]
    await until(lambda: ann.lost)
    assert asyncio.get_running_loop().time() <= began + 0.05
    await ann.close()


@simulated(2)
async def test_a_member_whose_claim_was_carried_out_without_an_answer_gets_its_partitions(tables):
    ann = Member(tables, "ann")
    ann.depot.hangs = {"claim"}
    await until(lambda: "claim" in ann.depot.names)
    tables.claim("ann", [0, 1])  # which the depot had carried out
    ann.depot.hangs = set()
    await until(lambda: len(ann.owned) == 2)
    assert {gained.epoch for gained in ann.owned.values()} == {2}
    await ann.close()


@simulated(8)
async def test_a_release_without_an_answer_is_sent_again(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 8)
    ann.depot.hangs = {"release"}
    bob = Member(tables, "bob")
    await until(lambda: ann.lost)
    await asyncio.sleep(SESSION)
    assert not bob.owned
    ann.depot.hangs = set()
    await until(lambda: bob.owned.keys() == set(ann.lost))
    assert len(ann.gained) == 8, "nothing went to ann again"
    for each in (ann, bob):
        await each.close()


@simulated(1)
async def test_start_waits_for_the_depot(tables):
    ann = Member(tables, "ann")
    ann.depot.down = "before"
    await asyncio.sleep(NEVER)
    assert ("queue_missing", "") in ann.notices.lasting
    assert ann.queue.partitions == 0
    ann.depot.down = ""
    await until(lambda: ann.owned)
    assert ann.queue.joined
    assert ("queue_missing", "") not in ann.notices.lasting
    assert ann.queue.partitions == 1
    assert not ann.notices.lasting
    await ann.close()


@simulated(1)
async def test_the_end_of_the_wait_for_the_depot_is_reported_before_anybody_joins(tables):
    depot, notices = MemoryDepot(tables), Told()
    queue = DepotQueue(depot, observer=RecordingObserver(), notices=notices)
    depot.down = "before"
    starting = asyncio.ensure_future(queue.start())
    await until(lambda: notices.lasting)
    depot.down = ""
    await starting
    assert not notices.lasting
    await queue.close()


@simulated(3)
async def test_close_gives_up_a_depot_that_does_not_answer(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 3)
    ann.depot.hangs = {"renew", "read", "commit"}
    ann.depot.leave = lambda _: asyncio.Event().wait()
    async with asyncio.timeout(5):
        await ann.close()
    assert not ann.queue.joined


def test_a_hand_over_that_the_end_cuts_off_is_not_reported_as_late(caplog):
    @simulated(8)
    async def run(tables):
        ann = Member(tables, "ann", settles=False)
        await until(lambda: len(ann.owned) == 8)
        ann.queue.reassign(range(8))
        await until(lambda: ann.lost)
        await ann.close()
        await asyncio.sleep(2 * SETTLE)

    run()
    assert not caplog.records


@pytest.mark.parametrize(("error", "raised"), [(Faulty("no such table"), Faulty), (KeyError("a bug"), Stuck)])
def test_assignments_raises_what_a_person_must_see(error, raised):
    @simulated(1)
    async def run(tables):
        ann = Member(tables, "ann")
        await until(lambda: ann.owned)
        ann.depot.breaks = error
        with pytest.raises(raised):
            await ann.following
        await ann.queue.close()

    run()


# --- packs and commits ------------------------------------------------------------------------------------------------


@simulated(1)
async def test_what_is_read_ahead_is_bounded_and_everything_is_read(tables):
    ann, count = Member(tables, "ann"), 5 * PACKS_MAX
    await until(lambda: ann.owned)
    for number in range(count):
        tables.put([(0, b"%d" % number)])
    await asyncio.sleep(NEVER)
    assert ann.queue._inboxes[0].unread < 2 * PACKS_MAX  # no method shows it
    calls, got = len(ann.depot.names), []
    while len(got) < count:
        got += payloads(await ann.queue.fetch(0, 4))
        assert ann.queue._inboxes[0].unread < 2 * PACKS_MAX
        await asyncio.sleep(0.01)
    assert got == [b"%d" % number for number in range(count)]
    assert len(ann.depot.names) - calls < 20, "one read serves many fetches"
    await ann.close()


@simulated(100)
async def test_a_backlog_is_read_without_rests(tables):
    ann, clock = Member(tables, "ann"), asyncio.get_running_loop().time
    await until(lambda: len(ann.owned) == 100)
    await asyncio.sleep(1)
    tables.put([(0, b"%d" % number) for number in range(200)])
    began = clock()
    assert payloads(await ann.take(0, 200)) == [b"%d" % number for number in range(200)]
    assert clock() - began < 0.1
    await ann.close()


@simulated(1)
async def test_reading_rests_for_longer_than_it_takes(tables):
    ann, plain = Member(tables, "ann"), MemoryDepot.read
    reads = []

    async def slow(after, limit):
        reads.append(after)
        await asyncio.sleep(0.5)
        return await plain(ann.depot, after, limit)

    ann.depot.read = slow
    await until(lambda: ann.owned)
    for _ in range(1_000):
        tables.put([(0, b"1")])
        await asyncio.sleep(0.1)
        if ann.queue._inboxes[0].unread:
            await ann.queue.fetch(0, 99)
    assert len(reads) < 100 / 0.5 / 4
    await ann.close()


@simulated(2)
async def test_packs_that_arrive_after_the_hand_over_has_begun_are_for_the_next_owner(tables):
    ann, plain, reads = Member(tables, "ann", settles=False), MemoryDepot.read, []

    async def slow(after, limit):
        reads.append(dict(after))
        found = await plain(ann.depot, after, limit)
        await asyncio.sleep(0.5)
        return found

    ann.depot.read = slow
    await until(lambda: len(ann.owned) == 2)
    await asyncio.sleep(5)
    await ann.depot.put([(0, b"1")])
    asked = len(reads)
    await until(lambda: len(reads) > asked)
    ann.queue.reassign([0])
    fetching = asyncio.ensure_future(ann.queue.fetch(0, 1))
    await asyncio.sleep(SETTLE / 2)
    assert not fetching.done()
    assert all(each.keys() == {1, ~1} for each in reads[asked + 1 :]), "and are not read any more"
    await ann.close()


@simulated(1)
async def test_a_read_without_an_answer_is_reported_and_sent_again(tables):
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    ann.depot.hangs = {"read"}
    await until(lambda: ("fetch_failed", "") in ann.notices.lasting)
    await ann.depot.put([(0, b"1")])
    ann.depot.hangs = set()
    assert payloads(await ann.take(0, 1)) == [b"1"]
    assert not ann.notices.lasting
    await ann.close()


@simulated(100)
async def test_each_of_many_partitions_reads_less_ahead(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 100)
    for _ in range(100):
        tables.put([(0, bytes(10 * 1024))])
    await asyncio.sleep(NEVER)
    assert bytes_max(200) <= ann.queue._inboxes[0].lanes[0].bytes < 1.2 * bytes_max(200) < bytes_max(1)
    await ann.close()


def test_the_unread_packs_of_thousands_of_partitions_share_the_memory():
    assert bytes_max(1) * 1 < ALL_BYTES_MAX
    assert bytes_max(1000) * 1000 <= ALL_BYTES_MAX
    assert bytes_max(10**6) > 0


@simulated(100)
async def test_commits_of_many_partitions_go_with_one_call(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 100)
    await ann.depot.put([(p, b"1") for p in range(100)])
    messages = [await ann.take(p, 1) for p in range(100)]
    await asyncio.gather(*(ann.finish(p, messages[p]) for p in range(100)))
    assert ann.depot.names.count("commit") == 1
    assert all(shelf.done == shelf.scan == shelf.next for shelf in tables.shelves)
    await ann.close()


@simulated(1)
async def test_two_commits_of_one_partition_in_one_call_are_one_that_says_both(tables):
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    await ann.depot.put([(0, b"%d" % number) for number in range(4)])
    first, second, third, fourth = await ann.take(0, 4)
    epoch = ann.owned[0].epoch
    await asyncio.gather(
        ann.queue.commit(0, epoch=epoch, done=second.offset, finished=[fourth.offset]),
        ann.queue.commit(0, epoch=epoch, done=first.offset, finished=[third.offset]),
    )
    assert ann.depot.names.count("commit") == 1
    assert tables.shelves[0].scan == fourth.offset + 1
    assert tables.shelves[0].done == second.offset
    assert list(tables.shelves[0].packs) == [second.offset]
    await ann.close()


class Sent:
    """The calls of `Commits`, which may fail."""

    def __init__(self):
        self.calls, self.error = [], None
        self.commits = Commits(self)
        self.running = asyncio.ensure_future(self.commits.run())

    async def __call__(self, wanted):
        self.calls.append(dict(wanted))
        if self.error:
            raise self.error


@simulated(1)
async def test_commits_that_come_together_go_together_and_each_of_them_once(tables):
    sent = Sent()
    one = asyncio.ensure_future(sent.commits.add({0: Progress(1, 5, 2, [4])}))
    await asyncio.sleep(0.001)
    await asyncio.gather(
        one, sent.commits.add({0: Progress(1, 7, 3, [6])}), sent.commits.add({1: Progress(1, 2, 2)})
    )
    await asyncio.sleep(NEVER)
    assert sent.calls == [{0: Progress(1, 7, 3, [4, 6]), 1: Progress(1, 2, 2)}]
    sent.running.cancel()


@simulated(1)
async def test_of_two_commits_of_different_epochs_the_newer_one_goes(tables):
    old, new = Progress(1, 9, 9, [8]), Progress(2, 5, 5)
    for first, second in ((old, new), (new, old)):
        sent = Sent()
        await asyncio.gather(sent.commits.add({0: first}), sent.commits.add({0: second}))
        assert sent.calls == [{0: new}]
        sent.running.cancel()


@simulated(1)
async def test_nobody_waits_for_a_commit_that_cannot_be_sent(tables):
    sent = Sent()
    sent.error = Faulty("no such table")
    with pytest.raises(Unavailable):
        await sent.commits.add({0: Progress(1, 1, 1)})
    with pytest.raises(Faulty):
        await sent.running
    sent = Sent()
    adding = asyncio.ensure_future(sent.commits.add({0: Progress(1, 1, 1)}))
    await asyncio.sleep(0.001)
    sent.running.cancel()
    with pytest.raises(Unavailable):
        await adding


@simulated(1)
async def test_nobody_may_commit_what_was_not_fetched(tables):
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    with pytest.raises(ValueError, match="beyond what was fetched"):
        await ann.queue.commit(0, epoch=ann.owned[0].epoch, done=99)
    await ann.close()


@simulated(500)
async def test_idle_partitions_cost_a_few_calls_a_second_whatever_their_number(tables):
    ann = Member(tables, "ann")
    await until(lambda: len(ann.owned) == 500)
    await asyncio.sleep(10)
    calls = len(ann.depot.names)
    await asyncio.sleep(100)
    assert len(ann.depot.names) - calls < 100 * 3
    assert len(asyncio.all_tasks()) < 10, "no partition has a task"
    await ann.close()


@simulated(1)
async def test_a_commit_of_a_partition_that_is_not_ours_is_ignored(tables):
    ann = Member(tables, "ann")
    await until(lambda: ann.owned)
    await ann.queue.commit(0, epoch=ann.owned[0].epoch - 1, done=1)
    await ann.queue.commit(0, epoch=ann.owned[0].epoch + 1, done=1)
    assert "commit" not in ann.depot.names
    bob = MemoryDepot(tables)
    assert list(await bob.commit("bob", {0: Progress(1, 1, 1)})) == [0]
    await ann.close()
