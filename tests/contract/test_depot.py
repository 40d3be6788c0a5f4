"""The contract of every depot with the queue on it.

A world stands for one depot technology, outside of the processes that use it. `depot()` is one more process's connection, opened;
`pass_time` makes all sessions older. To test another depot, add its world to `WORLDS`. Members have the names of people here.
"""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.core.lanes import partition_of_lane
from cacheupdater.depot_ports import Progress, TakesBack
from cacheupdater.testing.memory_depot import MemoryDepot, MemoryTables
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, encode_pack

pytestmark = pytest.mark.usefixtures("patient")

PARTITIONS = 3
SESSION = 30.0  # s: no test takes so long, so a session runs out only by `pass_time`
SOON = 60.0  # s: on any machine, expected events have happened by then


class MemoryWorld:
    """The fake."""

    def __init__(self):
        self.now = 1000.0
        self.tables = MemoryTables(PARTITIONS, lambda: self.now)

    async def start(self):
        return self

    async def depot(self):
        depot = MemoryDepot(self.tables)
        assert await depot.open() == PARTITIONS
        return depot

    async def pass_time(self, seconds):
        self.now += seconds

    async def close(self):
        """Nothing is open."""


@pytest.fixture
def memory_world():
    return MemoryWorld


@pytest.fixture
def redis_world(redis_url):
    from depots.redis_world import RedisWorld

    return lambda: RedisWorld(redis_url, redis.asyncio.Redis.from_url(redis_url))


@pytest.fixture
def redis_cluster_world(redis_cluster):
    from depots.redis_world import RedisWorld

    nodes = [redis.asyncio.cluster.ClusterNode("127.0.0.1", node.port) for node in redis_cluster.nodes]
    return lambda: RedisWorld(redis_cluster.url, redis.asyncio.RedisCluster(startup_nodes=nodes))


@pytest.fixture
def redis_sentinel_world(redis_sentinels):
    from depots.redis_world import RedisWorld

    return lambda: RedisWorld(redis_sentinels.url, redis.asyncio.Redis(port=redis_sentinels.primary().port))


@pytest.fixture
def sqlite_world(tmp_path):
    from depots.sql_world import SqlWorld

    return lambda: SqlWorld(f"sqlite:///{tmp_path}/hints.db")


@pytest.fixture
def postgres_world(pg_url):
    from depots.sql_world import SqlWorld

    return lambda: SqlWorld(pg_url)


WORLDS = [
    pytest.param("memory_world", id="memory"),
    pytest.param("redis_world", id="redis"),
    pytest.param("redis_cluster_world", id="redis cluster"),
    pytest.param("redis_sentinel_world", id="redis sentinel"),
    pytest.param("sqlite_world", id="sqlite"),
    pytest.param("postgres_world", id="postgres"),
]


@pytest.fixture(params=WORLDS)
def make_world(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def world(make_world):
    world = await make_world().start()
    yield world
    await world.close()


@pytest.fixture
async def depot(world):
    return await world.depot()


async def join(depot, *members):
    for member in members:
        await depot.renew(member, SESSION)


async def own(depot, member, partition):
    """The epoch under which this member owns the partition from now on."""
    await join(depot, member)
    [gained] = await depot.claim(member, [partition])
    return gained.epoch


async def owners(depot, observer="eve"):
    return dict((await depot.renew(observer, SESSION)).owners)


async def payloads(depot, partition, after=0, limit=100):
    return [message.payload for message in (await depot.read({partition: after}, limit)).get(partition, ())]


async def offsets(depot, partition):
    return [message.offset for message in (await depot.read({partition: 0}, 100))[partition]]


async def put(depot, partition, *packs):
    """Their offsets."""
    before = len(await payloads(depot, partition))
    await depot.put([(partition, pack) for pack in packs])
    return (await offsets(depot, partition))[before:]


# --- packs ----------------------------------------------------------------------------------------------------------


async def test_open_says_how_many_partitions_there_are_each_time_and_to_everybody(world, depot):
    assert await depot.open() == PARTITIONS
    assert await (await world.depot()).open() == PARTITIONS


async def test_packs_are_read_in_the_order_of_put_by_partition_with_rising_offsets(depot):
    await depot.put([(1, b"a"), (2, b"b"), (1, b"c")])
    await depot.put([(1, b"d")])
    found = await depot.read({0: 0, 1: 0, 2: 0}, 10)
    assert [message.payload for message in found[1]] == [b"a", b"c", b"d"]
    assert [message.payload for message in found[2]] == [b"b"]
    assert not found.get(0)
    rising = [message.offset for message in found[1]]
    assert rising == sorted(set(rising))
    assert rising[0] >= 1


async def test_read_gives_at_most_limit_packs_of_each_partition_from_the_offset_asked_for(depot):
    first, second, _ = await put(depot, 0, b"a", b"b", b"c")
    await put(depot, 2, b"d", b"e", b"f")
    assert await payloads(depot, 0, first, 2) == [b"a", b"b"]
    assert await payloads(depot, 0, first + 1, 2) == [b"b", b"c"]
    assert await payloads(depot, 0, second + 1, 2) == [b"c"]
    found = await depot.read({0: second, 2: 0}, 2)
    assert {partition: len(messages) for partition, messages in found.items()} == {0: 2, 2: 2}


async def test_read_waits_for_nothing_and_takes_nothing_away(depot):
    assert await payloads(depot, 0) == []
    await put(depot, 0, b"a")
    assert await payloads(depot, 0) == await payloads(depot, 0) == [b"a"]


async def test_a_new_partition_is_read_from_its_first_pack(depot):
    [first] = await put(depot, 1, b"a")
    await join(depot, "ann")
    [gained] = await depot.claim("ann", [1])
    assert gained.partition == 1
    assert gained.offset <= first


async def test_packs_may_be_of_any_bytes_and_large(depot):
    packs = [b"\x00\xff\x80", b"", bytes(range(255, -1, -1)) * 4096]
    await put(depot, 0, *packs)
    assert await payloads(depot, 0) == packs


async def test_packs_of_many_senders_at_once_all_arrive_each_sender_s_in_order(world):
    async def send(number):
        depot = await world.depot()
        for count in range(20):
            await depot.put([(0, b"%d %d" % (number, count))])

    await asyncio.gather(*(send(number) for number in range(4)))
    got = await payloads(await world.depot(), 0)
    for number in range(4):
        assert [each for each in got if each.startswith(b"%d " % number)] == [
            b"%d %d" % (number, count) for count in range(20)
        ]
    assert len(got) == 80


async def test_a_reader_that_goes_on_behind_what_it_has_read_misses_no_pack_of_many_senders(world):
    """An offset must not be read before all smaller ones can be: their packs would be skipped for ever."""
    senders, each, got, after = 3, 25, [], 0

    async def send(number):
        depot = await world.depot()
        for count in range(each):
            await depot.put([(0, b"%d %d" % (number, count)), (1, b"")])

    sending = asyncio.gather(*(send(number) for number in range(senders)))
    reader = await world.depot()
    async with asyncio.timeout(SOON):
        while len(got) < senders * each:
            if all_sent := sending.done():
                await sending  # a sender that failed has left out packs
            messages = (await reader.read({0: after}, 7)).get(0, ())
            assert messages or not all_sent, "some were skipped"
            got += [message.payload for message in messages]
            after = messages[-1].offset + 1 if messages else after
            await asyncio.sleep(0)
    await sending
    assert len(set(got)) == senders * each


async def test_wait_returns_soon_after_a_put_even_if_that_came_before_the_wait(world, depot):
    await depot.read({0: 0}, 10)
    await (await world.depot()).put([(0, b"a")])
    async with asyncio.timeout(SOON):
        await depot.wait(10 * SOON)
    await depot.read({0: 0}, 10)
    waiting = asyncio.ensure_future(depot.wait(10 * SOON))
    for _ in range(5):
        await asyncio.sleep(0)  # so the wait has begun
    await (await world.depot()).put([(0, b"b")])
    async with asyncio.timeout(SOON):
        await waiting


async def test_wait_returns_without_a_put_and_can_be_cancelled(depot):
    await depot.read({0: 0}, 10)
    async with asyncio.timeout(SOON):
        await depot.wait(0.01)
    waiting = asyncio.ensure_future(depot.wait(SOON))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await put(depot, 0, b"a")
    assert await payloads(depot, 0) == [b"a"]


# --- sessions and ownership -----------------------------------------------------------------------------------------


async def test_a_roster_names_the_members_whose_sessions_run_and_what_they_own(world, depot):
    await join(depot, "ann")
    await depot.claim("ann", [0, 2])
    roster = await (await world.depot()).renew("bob", SESSION)
    assert roster.members == {"ann", "bob"}
    assert dict(roster.owners) == {0: "ann", 2: "ann"}


async def test_a_session_runs_for_its_time_from_its_last_renewal(world, depot):
    await join(depot, "ann")
    await world.pass_time(0.7 * SESSION)
    await join(depot, "ann")
    await world.pass_time(0.7 * SESSION)
    assert (await depot.renew("bob", SESSION)).members == {"ann", "bob"}
    await world.pass_time(0.7 * SESSION)
    assert (await depot.renew("bob", SESSION)).members == {"bob"}


async def test_each_member_s_session_is_as_long_as_its_own_renewal_says(world, depot):
    await depot.renew("ann", SESSION)
    await depot.renew("bob", 3 * SESSION)
    await world.pass_time(2 * SESSION)
    assert (await depot.renew("eve", SESSION)).members == {"bob", "eve"}


async def test_partitions_are_free_once_their_owner_s_session_has_run_out(world, depot):
    old = await own(depot, "ann", 1)
    await world.pass_time(SESSION + 1)
    assert await owners(depot) == {}
    assert await own(depot, "bob", 1) > old
    assert await owners(depot) == {1: "bob"}


async def test_what_another_owns_cannot_be_claimed(depot):
    await own(depot, "ann", 1)
    await join(depot, "bob")
    gained = await depot.claim("bob", [0, 1, 2])
    assert {each.partition for each in gained} == {0, 2}
    assert await owners(depot) == {0: "bob", 1: "ann", 2: "bob"}


async def test_nothing_can_be_claimed_without_a_session_that_runs(world, depot):
    assert list(await depot.claim("ann", [0, 1])) == []
    await join(depot, "ann")
    await world.pass_time(SESSION + 1)
    assert list(await depot.claim("ann", [0, 1])) == []
    assert await owners(depot) == {}


async def test_whoever_has_not_heard_the_answer_to_a_claim_claims_again_under_a_newer_epoch(depot):
    first = await own(depot, "ann", 0)
    second = await own(depot, "ann", 0)
    assert second > first
    assert list(await depot.commit("ann", {0: Progress(first, 1, 1)})) == [0]
    assert list(await depot.commit("ann", {0: Progress(second, 1, 1)})) == []


async def test_epochs_of_a_partition_rise_through_releases_leaves_and_ends_of_sessions(world, depot):
    epochs = [await own(depot, "ann", 0)]
    await depot.release("ann", {0: epochs[-1]})
    epochs.append(await own(depot, "bob", 0))
    await depot.leave("bob")
    epochs.append(await own(depot, "ann", 0))
    await world.pass_time(SESSION + 1)
    epochs.append(await own(depot, "bob", 0))
    assert epochs == sorted(set(epochs))


async def test_a_partition_is_released_by_its_present_epoch_and_owner_only(depot):
    old = await own(depot, "ann", 0)
    await depot.release("ann", {0: old})
    assert await owners(depot) == {}
    new = await own(depot, "bob", 0)
    await depot.release("ann", {0: old})
    await depot.release("bob", {0: old})
    await depot.release("ann", {0: new})
    assert await owners(depot) == {0: "bob"}
    await depot.release("bob", {0: new})
    assert await owners(depot) == {}


async def test_whoever_leaves_is_no_member_and_owns_nothing_at_once_and_the_others_keep_theirs(depot):
    await own(depot, "ann", 0)
    await own(depot, "ann", 1)
    await own(depot, "bob", 2)
    await depot.leave("ann")
    roster = await depot.renew("bob", SESSION)
    assert roster.members == {"bob"}
    assert dict(roster.owners) == {2: "bob"}
    await depot.leave("ann")


async def test_of_members_that_claim_at_once_each_partition_has_one_owner(world):
    members = [f"member {number}" for number in range(5)]
    depots = [await world.depot() for _ in members]
    for depot, member in zip(depots, members, strict=True):
        await join(depot, member)
    for _ in range(5):
        claims = [depot.claim(member, [0, 1, 2]) for depot, member in zip(depots, members, strict=True)]
        gained = dict(zip(members, await asyncio.gather(*claims), strict=True))
        owned = [each.partition for claimed in gained.values() for each in claimed]
        assert sorted(owned) == [0, 1, 2]
        assert await owners(depots[0], members[0]) == {
            each.partition: member for member, claimed in gained.items() for each in claimed
        }
        for depot, member in zip(depots, members, strict=True):
            await depot.release(member, {each.partition: each.epoch for each in gained[member]})


# --- commits --------------------------------------------------------------------------------------------------------


async def test_the_next_owner_reads_from_the_done_that_was_committed_last(depot):
    epoch = await own(depot, "ann", 1)
    _, second, third = await put(depot, 1, b"a", b"b", b"c")
    assert list(await depot.commit("ann", {1: Progress(epoch, third + 1, second)})) == []
    await depot.release("ann", {1: epoch})
    await join(depot, "bob")
    [gained] = await depot.claim("bob", [1])
    assert gained.offset == second
    assert await payloads(depot, 1, gained.offset) == [b"b", b"c"]


async def test_done_never_moves_back(depot):
    epoch = await own(depot, "ann", 1)
    first, second = await put(depot, 1, b"a", b"b")
    await depot.commit("ann", {1: Progress(epoch, second + 1, second + 1)})
    assert list(await depot.commit("ann", {1: Progress(epoch, second + 1, first + 1)})) == []
    [gained] = await depot.claim("ann", [1])
    assert gained.offset == second + 1


async def test_a_commit_of_an_older_epoch_is_refused_and_changes_nothing(world, depot):
    old = await own(depot, "ann", 0)
    [first] = await put(depot, 0, b"a")
    await world.pass_time(SESSION + 1)
    await join(depot, "bob")
    [gained] = await depot.claim("bob", [0])
    assert list(await depot.commit("ann", {0: Progress(old, first + 1, first + 1, [first])})) == [0]
    assert list(await depot.commit("bob", {0: Progress(old, first + 1, first + 1)})) == [0]
    assert list(await depot.commit("ann", {0: Progress(gained.epoch, first + 1, first + 1)})) == [0]
    assert await payloads(depot, 0, gained.offset) == [b"a"]
    [again] = await depot.claim("bob", [0])
    assert again.offset == gained.offset


async def test_a_commit_is_refused_after_the_release_and_after_the_leave(depot):
    epoch = await own(depot, "ann", 0)
    [first] = await put(depot, 0, b"a")
    await depot.release("ann", {0: epoch})
    assert list(await depot.commit("ann", {0: Progress(epoch, first + 1, first + 1)})) == [0]
    epoch = await own(depot, "ann", 0)
    await depot.leave("ann")
    assert list(await depot.commit("ann", {0: Progress(epoch, first + 1, first + 1)})) == [0]
    assert await payloads(depot, 0) == [b"a"]


async def test_of_a_commit_for_many_partitions_only_those_are_refused_that_are_not_ours(depot):
    epochs = {partition: await own(depot, "ann", partition) for partition in (0, 1, 2)}
    ends = {partition: (await put(depot, partition, b"a"))[0] + 1 for partition in epochs}
    await depot.release("ann", {1: epochs[1]})
    progress = {p: Progress(epochs[p], ends[p], ends[p]) for p in epochs}
    assert list(await depot.commit("ann", progress)) == [1]
    await join(depot, "bob")
    await depot.release("ann", epochs)
    gained = {each.partition: each.offset for each in await depot.claim("bob", [0, 1, 2])}
    assert gained[0] == ends[0]
    assert gained[1] < ends[1]
    assert gained[2] == ends[2]


async def test_packs_before_done_and_those_finished_behind_it_are_deleted(depot):
    epoch = await own(depot, "ann", 1)
    first, second, third, _, fifth = await put(depot, 1, b"a", b"b", b"c", b"d", b"e")
    await depot.commit("ann", {1: Progress(epoch, fifth + 1, second, [third])})
    assert await payloads(depot, 1, second) == [b"b", b"d", b"e"]
    async with asyncio.timeout(SOON):
        while first in await offsets(depot, 1):  # deleted in batches, perhaps by a later commit
            await depot.commit("ann", {1: Progress(epoch, fifth + 1, second)})
            await asyncio.sleep(0)
    await depot.commit("ann", {1: Progress(epoch, fifth + 1, second, [fifth])})
    assert await payloads(depot, 1) == [b"b", b"d"]
    await depot.release("ann", {1: epoch})
    await join(depot, "bob")
    [gained] = await depot.claim("bob", [1])
    assert await payloads(depot, 1, gained.offset) == [b"b", b"d"]


async def test_offsets_rise_even_where_all_packs_were_finished_and_deleted(depot):
    epoch = await own(depot, "ann", 2)
    _, last = await put(depot, 2, b"a", b"b")
    await depot.commit("ann", {2: Progress(epoch, last + 1, last + 1)})
    assert await payloads(depot, 2, last + 1) == []
    await depot.put([(2, b"c"), (2, b"d")])
    await depot.put([(2, b"e")])
    assert await payloads(depot, 2, last + 1) == [b"c", b"d", b"e"]


async def test_a_commit_of_one_partition_leaves_the_packs_of_others_alone(depot):
    epoch = await own(depot, "ann", 0)
    _, last = await put(depot, 0, b"a", b"b")
    await put(depot, 1, b"c", b"d")
    await depot.commit("ann", {0: Progress(epoch, last + 1, last + 1)})
    assert await payloads(depot, 1) == [b"c", b"d"]


async def test_packs_are_put_back_at_the_end_of_the_lane_that_is_read_first(depot):
    if not isinstance(depot, TakesBack):
        assert isinstance(depot, RedisDepot), (
            "streams alone delete each finished entry, and forget nothing else"
        )
        return
    await depot.put([(1, A_CHANGE)])
    where = await depot.put_back(1, [b"c", b"d"])
    await depot.put([(1, A_MISS)])
    assert await payloads(depot, ~1) == [A_CHANGE, b"c", b"d", A_MISS]
    assert list(where) == (await offsets(depot, ~1))[1:3]


async def test_packs_that_are_put_back_while_others_send_lie_where_it_is_said(world):
    sender, owner = await world.depot(), await world.depot()
    if not isinstance(owner, TakesBack):
        return
    await owner.put_back(0, [b"back"])
    sending = asyncio.gather(*(sender.put([(0, A_CHANGE)]) for _ in range(20)))
    where = [await owner.put_back(0, [b"back", b"back"]) for _ in range(10)]
    await sending
    said = [offset for each in where for offset in each]
    messages = (await owner.read({~0: 0}, 100))[~0]
    assert said == [each.offset for each in messages if each.payload == b"back"][1:]


async def test_what_was_put_is_there_for_a_depot_that_is_opened_later(world, depot):
    epoch = await own(depot, "ann", 0)
    first, _ = await put(depot, 0, b"a", b"b")
    await depot.commit("ann", {0: Progress(epoch, first + 1, first + 1)})
    await depot.close()
    later = await world.depot()
    assert await owners(later) == {0: "ann"}
    [gained] = await later.claim("ann", [0])
    assert gained.epoch > epoch
    assert gained.offset == first + 1
    assert await payloads(later, 0, gained.offset) == [b"b"]


# --- lanes ----------------------------------------------------------------------------------------------------------

KEY = b"item:7"
A_TOUCH, A_MISS, A_CHANGE = (encode_pack(kind, 1, [KEY]) for kind in (TOUCH, MISS, CHANGE))


async def found(depot, after):
    """By lane, offset and payload of what lies there."""
    read = await depot.read(after, 10)
    return {lane: [(each.offset, each.payload) for each in messages] for lane, messages in read.items()}


async def has_lanes(depot, partition=1):
    """Whether this depot has lanes. Only streams of a Redis have none."""
    await join(depot, "eve")
    [claimed] = await depot.claim("eve", [partition])
    await depot.leave("eve")
    assert (claimed.urgent is None) == isinstance(depot, RedisDepot)
    return claimed.urgent is not None


async def test_changes_and_misses_go_to_the_urgent_lane_and_all_else_to_that_of_touches(depot):
    packs = [A_TOUCH, A_MISS, b"no pack", A_CHANGE]
    await depot.put([(1, pack) for pack in packs])
    if not await has_lanes(depot):
        assert await payloads(depot, 1) == packs
        return
    assert await found(depot, {1: 1, ~1: 1, ~0: 1}) == {
        1: [(1, A_TOUCH), (2, b"no pack")],
        ~1: [(1, A_MISS), (2, A_CHANGE)],
    }
    assert await found(depot, {~1: 2, 1: 3}) == {~1: [(2, A_CHANGE)]}


async def test_each_lane_has_a_done_of_its_own_under_the_epoch_of_its_partition(world, depot):
    if not await has_lanes(depot):
        return
    await depot.put([(1, A_TOUCH)] * 3 + [(1, A_CHANGE)] * 3 + [(2, A_CHANGE)])
    epoch = await own(depot, "ann", 1)
    assert list(await depot.commit("ann", {~1: Progress(epoch, 4, 2, [3]), 1: Progress(epoch, 3, 3)})) == []
    assert list(await depot.commit("ann", {~1: Progress(epoch, 1, 1), 1: Progress(epoch, 1, 1)})) == []
    await world.pass_time(SESSION + 1)
    await join(depot, "bob")
    [claimed] = await depot.claim("bob", [1])
    assert (claimed.offset, claimed.urgent) == (3, 2)
    assert await found(depot, {1: 3, ~1: 2}) == {1: [(3, A_TOUCH)], ~1: [(2, A_CHANGE)]}
    late = {~1: Progress(epoch, 4, 4), 1: Progress(epoch, 4, 4)}
    assert set(await depot.commit("ann", late)) == {1, ~1}
    mixed = {~1: Progress(claimed.epoch, 4, 4), 1: Progress(epoch, 4, 4)}
    assert list(await depot.commit("bob", mixed)) == [1]
    assert await found(depot, {1: 3, ~1: 2, ~2: 1}) == {1: [(3, A_TOUCH)], ~2: [(1, A_CHANGE)]}


async def test_what_is_put_back_lies_in_the_urgent_lane_whatever_it_is(depot):
    if not await has_lanes(depot):
        return
    await depot.put([(1, A_CHANGE), (1, A_TOUCH)])
    assert list(await depot.put_back(1, [A_TOUCH, A_MISS])) == [2, 3]
    assert await found(depot, {1: 1, ~1: 2}) == {1: [(1, A_TOUCH)], ~1: [(2, A_TOUCH), (3, A_MISS)]}


async def test_lag_and_drop_know_both_lanes(world, depot):
    if not await has_lanes(depot):
        return
    await depot.put([(1, A_TOUCH)] * 3 + [(1, A_CHANGE)] * 2)
    operator = await world.depot()
    assert {each.lane: each.packs for each in await operator.lag()} == {~0: 0, 0: 0, ~1: 2, 1: 3, ~2: 0, 2: 0}
    await operator.drop(~1, 3)
    assert [(await lag_of(operator, lane)).packs for lane in (~1, 1)] == [0, 3]
    await depot.put([(1, A_CHANGE)])
    await operator.drop(1, 4)
    assert [(await lag_of(operator, lane)).packs for lane in (~1, 1)] == [1, 0]
    assert await found(depot, {1: 1, ~1: 1}) == {~1: [(3, A_CHANGE)]}


# --- waiting packs --------------------------------------------------------------------------------------------------


async def lag_of(depot, lane=0):
    [lag] = [each for each in await depot.lag() if each.lane == lane]
    return lag


async def lags_of_touches(depot):
    """In a depot without lanes, of all packs."""
    return [each for each in await depot.lag() if each.lane >= 0]


async def test_lag_counts_the_packs_that_no_owner_has_finished(world, depot):
    epoch = await own(depot, "ann", 1)
    first, second, _, fourth = await put(depot, 1, b"a", b"b", b"c", b"d")
    await put(depot, 2, b"e")
    operator = await world.depot()
    lags = await lags_of_touches(operator)
    assert [each.lane for each in lags] == [0, 1, 2]
    assert [each.packs for each in lags] == [0, 4, 1]
    assert lags[1].done <= first
    assert lags[1].end > fourth
    await depot.commit("ann", {1: Progress(epoch, fourth + 1, second, [fourth])})
    lag = await lag_of(operator, 1)
    assert (lag.packs, lag.done) == (2, second)


async def test_lag_names_the_owners_whose_sessions_run_and_whoever_asks_joins_nothing(world, depot):
    await own(depot, "ann", 0)
    await depot.renew("bob", 3 * SESSION)
    await depot.claim("bob", [2])
    await world.pass_time(SESSION + 1)
    owned = {partition_of_lane(each.lane): each.owner for each in await (await world.depot()).lag()}
    assert owned == {0: None, 1: None, 2: "bob"}
    roster = await depot.renew("bob", SESSION)
    assert (roster.members, dict(roster.owners)) == ({"bob"}, {2: "bob"})


async def test_dropped_packs_wait_no_more_and_those_that_came_later_do(world, depot):
    await put(depot, 0, b"a", b"b")
    await put(depot, 1, b"other")
    operator = await world.depot()
    seen = await lag_of(operator)
    await depot.put([(0, b"late"), (0, b"later")])
    await operator.drop(0, seen.end)
    assert (await lag_of(operator)).packs == 2
    assert await payloads(depot, 0) == [b"late", b"later"]
    assert await payloads(depot, 1) == [b"other"]
    await join(depot, "ann")
    [gained] = await depot.claim("ann", [0])
    assert gained.offset == seen.end


async def test_a_drop_takes_no_partition_from_its_owner_whose_commits_move_nothing_back(world, depot):
    epoch = await own(depot, "ann", 0)
    first, second = await put(depot, 0, b"a", b"b")
    operator = await world.depot()
    seen = await lag_of(operator)
    await operator.drop(0, seen.end)
    assert list(await depot.commit("ann", {0: Progress(epoch, second + 1, first + 1, [second])})) == []
    lag = await lag_of(operator)
    assert (lag.packs, lag.done, lag.owner) == (0, seen.end, "ann")
    await operator.drop(0, first)
    assert (await lag_of(operator)).done == seen.end
    await put(depot, 0, b"next")
    assert await payloads(depot, 0, seen.end) == [b"next"]


async def test_a_drop_of_many_packs_deletes_them_all(depot):
    for _ in range(12):
        await depot.put([(0, b"%d" % each) for each in range(500)])
    await depot.drop(0, (await lag_of(depot)).end)
    assert await payloads(depot, 0) == []
    assert (await lag_of(depot)).packs == 0
