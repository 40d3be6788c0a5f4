"""The depot on a real Redis: its limits, what foreign values do, and a Redis that is full, restarted or restricted.

`tests/contract/test_depot.py` has what all depots have in common.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis.asyncio
from depots.redis_world import RedisWorld
from depots.world import SESSION, own

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.depot_ports import Progress
from cacheupdater.errors import Faulty, Forbidden, Misconfigured, Unavailable
from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH, decode_pack, encode_pack

pytestmark = pytest.mark.usefixtures("patient")

ROOT = Path(__file__).parents[2]
SOON = 60.0  # s: on any machine, expected events have happened by then
CHANGED, MISSED = encode_pack(CHANGE, 1, [b"changed"]), encode_pack(MISS, 1, [b"missed"])


def touched(number):
    return encode_pack(TOUCH, 1, [b"touched %d" % number])


@pytest.fixture
async def make(redis_url):
    """A world at the usual server, or at another; with options."""
    worlds = []

    def make(url=redis_url, **options):
        client = redis.asyncio.Redis.from_url(redis_url if "+" in url else url)
        worlds.append(RedisWorld(url, client, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.close()


async def payloads(depot, partition=0, after=0):
    return [message.payload for message in (await depot.read({partition: after}, 10_000)).get(partition, ())]


async def put_for_ever(depot, pack):
    while True:
        await depot.put([(0, pack), (1, pack)])


async def until(condition):
    """Polls for what a server is about to do."""
    async with asyncio.timeout(SOON):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


# --- opening ------------------------------------------------------------------------------------------------


async def test_who_names_no_partitions_takes_those_that_are_there_and_who_names_others_is_refused(make):
    await make(partitions=7).depot()
    world = make()
    world.url = world.url.replace("&partitions=3", "")
    assert await world.closed_depot().open() == 7
    with pytest.raises(Misconfigured, match="have 7 partitions, and the URL says 3"):
        await make().closed_depot().open()


async def test_a_redis_that_evicts_is_refused_unless_the_url_allows_it(make, redis_server):
    world = make(redis_server.url)
    await world.client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(Misconfigured, match=r"allkeys-lru.*evicting=allowed"):
        await world.closed_depot().open()
    await make(redis_server.url, options="&evicting=allowed").depot()
    await world.client.config_set("maxmemory-policy", "noeviction")
    await world.depot()


@pytest.mark.parametrize("where", ["redis://a", "redis+cluster://a", "redis+sentinel://a/main"])
def test_an_option_that_redis_py_does_not_know_is_refused_at_once(where):
    with pytest.raises(Misconfigured, match="an option that redis-py cannot read"):
        RedisWorld(where, None, options="&colour=red").closed_depot()


# --- limits -------------------------------------------------------------------------------------------------


async def test_the_oldest_touches_go_when_there_are_too_many_and_their_owner_counts_them(make):
    world = make(options="&length=100")
    depot = await world.depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, CHANGED), (0, MISSED)])
    for start in range(0, 1000, 50):
        await depot.put([(0, touched(number)) for number in range(start, start + 50)])

    got = await payloads(depot)
    left = [each for each in got if each not in {CHANGED, MISSED}]
    assert got[:2] == [CHANGED, MISSED]
    assert 100 <= len(left) < 400, "Redis trims whole nodes of a stream"
    assert left == [touched(number) for number in range(1000 - len(left), 1000)]
    assert await depot.commit("ann", {0: Progress(epochs[0], 1, 1)}) == set()
    assert world.observer.total("lost_packs", reason="trimmed") == 1000 - len(left)
    await depot.commit("ann", {0: Progress(epochs[0], 1, 1)})
    assert world.observer.total("lost_packs", reason="trimmed") == 1000 - len(left), "each counts once"


async def test_touches_that_are_too_old_go_and_changes_stay(make, monkeypatch):
    monkeypatch.setattr(streams, "TOUCH_AGE_MS", 1)
    depot = await make().depot()
    large = touched(1) + bytes(5000)  # an entry of its own node
    await depot.put([(0, CHANGED), (0, large)])

    async def gone():
        await depot.put([(0, touched(2))])
        return large not in await payloads(depot)

    await until(gone)
    assert (await payloads(depot))[0] == CHANGED


async def test_a_full_stream_of_changes_refuses_more_and_nothing_of_such_a_put_is_done(make):
    depot = await make(options="&length=10").depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, CHANGED)] * 10)
    with pytest.raises(Unavailable, match="full: 10 packs"):
        await depot.put([(1, touched(1)), (0, MISSED)])
    assert await payloads(depot, 1) == []
    assert await payloads(depot) == [CHANGED] * 10

    last = (await depot.read({0: 0}, 10))[0][4].offset
    await depot.commit("ann", {0: Progress(epochs[0], last + 1, last + 1)})
    await depot.put([(1, touched(1)), (0, MISSED)])
    assert await payloads(depot) == [CHANGED] * 5 + [MISSED]


async def test_a_partition_that_does_not_exist_takes_nothing(make):
    depot = await make().depot()
    with pytest.raises(Faulty, match="3 partitions only"):
        await depot.put([(0, CHANGED), (3, CHANGED)])
    assert await payloads(depot) == []


async def test_a_redis_at_its_maxmemory_refuses_packs_until_finished_ones_are_committed(make, redis_server):
    world = make(redis_server.url)
    depot = await world.depot()
    epochs = await own(depot, "ann", 0)
    await world.client.config_set("maxmemory", "6mb")
    pack = CHANGED + bytes(100_000)
    with pytest.raises(Unavailable, match="maxmemory"):
        await put_for_ever(depot, pack)

    there = (await depot.read({0: 0}, 200))[0]
    assert len(there) == len(await payloads(depot, 1)), "a put is done or not"
    await world.client.config_set("maxmemory", "1")  # nothing that takes memory is done any more
    assert (await depot.renew("ann", SESSION)).owners == {0: "ann"}, "sessions go on"
    assert (await own(depot, "bob", 1)).keys() == {1}, "so does a take-over"
    done = there[-1].offset + 1
    assert await depot.commit("ann", {0: Progress(epochs[0], done, done)}) == set()
    await world.client.config_set("maxmemory", "6mb")
    await depot.put([(0, CHANGED)])
    assert await payloads(depot) == [CHANGED]


async def test_a_commit_is_refused_once_the_session_has_run_out_even_if_nobody_has_claimed_since(make):
    world = make()
    depot = await world.depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, CHANGED)])
    end = (await depot.read({0: 0}, 1))[0][0].offset + 1
    await world.pass_time(SESSION + 1)
    assert await depot.commit("ann", {0: Progress(epochs[0], end, end)}) == {0}
    assert await payloads(depot) == [CHANGED]


# --- losses -------------------------------------------------------------------------------------------------


async def test_a_redis_that_comes_back_empty_frees_all_partitions_and_no_number_comes_twice(
    make, redis_server
):
    world = make(redis_server.url)
    depot = await world.depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, CHANGED)])
    [old] = (await depot.read({0: 0}, 10))[0]
    redis_server.kill()
    with pytest.raises(Unavailable):
        await depot.renew("ann", SESSION)
    redis_server.start()

    assert list(await depot.commit("ann", {0: Progress(epochs[0], old.offset, old.offset)})) == [0]
    assert (await depot.renew("ann", SESSION)).owners == {}
    assert world.observer.total("lost_packs", reason="redis") == 1
    assert [notice.event for notice in world.notices.standing()] == ["depot_lost"]
    [again] = await depot.claim("ann", [0])
    assert again.epoch > epochs[0]
    await depot.put([(0, MISSED)])
    [new] = (await depot.read({0: old.offset + 1}, 10))[0]
    assert new.payload == MISSED
    assert await depot.commit("ann", {0: Progress(again.epoch, new.offset + 1, new.offset + 1)}) == set()
    await depot.renew("ann", SESSION)
    assert world.observer.total("lost_packs", reason="redis") == 1


@pytest.mark.parametrize(("stands", "told"), [(60.0, ["depot_lost"]), (0.0, [])])
async def test_a_loss_stands_as_a_trouble_though_the_streams_are_well_again_at_once(
    make, monkeypatch, stands, told
):
    """The next renewal finds nothing wrong, milliseconds later. Nobody could see a trouble that had ended then."""
    monkeypatch.setattr("cacheupdater.adapters.depot_redis.depot.LOSS_STANDS_S", stands)
    world = make()
    depot = await world.depot()
    await own(depot, "ann", 0)
    await world.client.flushall()
    for _ in range(3):
        await depot.renew("ann", SESSION)
    assert [notice.event for notice in world.notices.standing()] == told


async def test_a_loss_is_told_by_each_member_though_another_has_come_before_and_claimed(make):
    """The first one's claims bring epochs that are higher than all that the second one knew."""
    world = make()
    ann, bob = await world.depot(), await world.depot()
    await own(ann, "ann", 0)
    await own(bob, "bob", 1)
    await world.client.flushall()
    await own(ann, "ann", 0, 1)
    for _ in range(2):
        await bob.renew("bob", SESSION)
    assert world.observer.total("lost_packs", reason="redis") == 2


async def test_done_of_a_former_life_never_covers_packs_that_come_after_a_redis_went_back_to_an_older_state(
    make, redis_server
):
    world = make(redis_server.url)
    depot = await world.depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, CHANGED)])
    dumps = {key: await world.client.dump(key) for key in await world.client.keys()}
    await depot.put([(0, MISSED)] * 100)
    done = (await depot.read({0: 0}, 1000))[0][-1].offset + 1
    await world.client.flushall()
    for key, dump in dumps.items():
        await world.client.restore(key, 0, dump)

    assert await depot.commit("ann", {0: Progress(epochs[0], done, done)}) == set(), "our epoch is there"
    await depot.put([(0, touched(1))])
    assert await payloads(depot, 0, done) == [touched(1)]


async def test_a_partition_that_knows_a_higher_epoch_is_gained_under_a_still_higher_one(make):
    """A cluster's node with the roster came back empty, and its clock had stepped back."""
    world = make()
    depot = await world.depot()
    await depot.renew("ann", SESSION)
    ahead = 4_000_000_000_000_000
    await world.client.hset("{hints:1}", "epoch", ahead)
    assert list(await depot.claim("ann", [1])) == []
    assert (await depot.renew("ann", SESSION)).owners == {}
    [gained] = await depot.claim("ann", [1])
    assert gained.epoch > ahead


async def test_a_commit_is_refused_by_the_partition_if_another_has_taken_it_since_the_roster_was_asked(make):
    world = make()
    depot = await world.depot()
    epochs = await own(depot, "ann", 0)
    await world.client.hset("{hints:0}", "epoch", epochs[0] + 1)
    await depot.put([(0, CHANGED)])
    end = (await depot.read({0: 0}, 1))[0][0].offset + 1
    assert await depot.commit("ann", {0: Progress(epochs[0], end, end)}) == {0}
    assert await payloads(depot) == [CHANGED]


async def test_a_partition_that_is_gone_while_the_roster_is_not_is_told_and_gained_anew(make):
    """One node of a cluster has come back empty."""
    world = make()
    depot = await world.depot()
    epochs = await own(depot, "ann", 0, 1)
    await depot.put([(0, CHANGED), (1, CHANGED)])
    await world.client.delete(*streams.keys_of("hints", 0))
    progress = {partition: Progress(epoch, 1, 1) for partition, epoch in epochs.items()}
    assert await depot.commit("ann", progress) == {0}
    assert world.observer.total("lost_packs", reason="redis") == 1
    assert [notice.event for notice in world.notices.standing()] == ["depot_lost"]
    [gained] = await depot.claim("ann", [0])
    assert await depot.commit("ann", {0: Progress(gained.epoch, 1, 1)}) == set()


async def test_a_failover_that_loses_the_latest_entries_is_told_and_the_depot_goes_on(make, redis_sentinels):
    world = make(redis_sentinels.url)
    depot = await world.depot()
    await own(depot, "ann", 0)
    before = redis_sentinels.primary()
    redis_sentinels.failover()
    await own(depot, "ann", 1)  # the former primary answers until it is told
    redis_sentinels.demote(before)

    async def goes_on():
        try:
            return (await own(depot, "ann", 0, 1, 2)).keys() == {0, 1, 2}
        except Unavailable:
            return False

    await until(goes_on)
    assert world.observer.total("lost_packs", reason="redis") == 1
    await depot.put([(0, CHANGED)])
    assert await payloads(depot) == [CHANGED]


async def test_scripts_that_the_server_has_forgotten_are_loaded_again(make):
    world = make()
    depot = await world.depot()
    await own(depot, "ann", 0, 1, 2)
    await world.client.script_flush()
    await depot.put([(0, CHANGED)])
    await world.client.script_flush()
    assert (await own(depot, "ann", 0, 1, 2)).keys() == {0, 1, 2}
    assert await payloads(depot) == [CHANGED]


# --- what others do -----------------------------------------------------------------------------------------


async def test_foreign_values_under_our_keys_are_a_clear_error(make):
    world = make()
    depot = await world.depot()
    await world.client.set("{hints:1}:touches", "not a stream")
    await world.client.set("{hints:2}", "not a hash")
    await depot.renew("ann", SESSION)
    for call in (depot.read({0: 0, 1: 0}, 1), depot.put([(1, touched(1))]), depot.claim("ann", [2])):
        with pytest.raises(Faulty, match=r"not ours; remove the keys that begin with \{hints"):
            await call
    await world.client.set("{hints}", "not a hash")
    for call in (depot.renew("ann", SESSION), world.closed_depot().open()):
        with pytest.raises(Faulty, match="not ours"):
            await call


async def test_foreign_entries_in_our_records_and_streams_are_passed_over(make):
    world = make()
    depot = await world.depot()
    await own(depot, "ann", 0)
    rubbish = {
        "member:bob": "later",
        "owner:1": "ann",
        "owner:x": "1 ann",
        "epoch": "9" * 30,
        "owner:2": "1 carl",
    }
    await world.client.hset("{hints}", mapping=rubbish)
    await world.client.hset(
        "{hints:1}", mapping={"epoch": "-1", "done": "1e9", "last": "9" * 16, "trimmed": "x"}
    )
    roster = await depot.renew("ann", SESSION)
    assert (roster.members, roster.owners) == ({"ann"}, {0: "ann"})
    [gained] = await depot.claim("ann", [1])
    assert gained.offset == 1
    await world.client.xadd("{hints:1}:kept", {"something": "else"}, id="5-3")
    await depot.put([(1, CHANGED)])
    first, second = (await depot.read({1: 0}, 10))[1]
    assert (first.payload, second.payload) == (b"", CHANGED)
    end = second.offset + 1
    assert await depot.commit("ann", {1: Progress(gained.epoch, end, end)}) == set()
    assert await payloads(depot, 1) == []


async def test_a_roster_that_no_updater_has_written_is_a_clear_error(make):
    world = make()
    depot = await world.depot()
    await world.client.hset("{hints}", "partitions", "many")
    for call in (depot.renew("ann", SESSION), world.closed_depot().open()):
        with pytest.raises((Faulty, Misconfigured), match="remove this key"):
            await call


async def test_a_dead_member_s_session_ends_even_if_the_clock_of_redis_has_stepped_back(make):
    world = make()
    depot = await world.depot()
    await own(depot, "ann", 0)
    await world.pass_time(-1_000_000)
    await depot.renew("bob", SESSION)
    await world.pass_time(SESSION + 1)
    assert (await depot.renew("bob", SESSION)).members == {"bob"}


RIGHTS = "+@connection +evalsha +script|load +info +time +xread +hget +hset +hsetnx +hdel +hgetall +hincrby +xadd +xlen +xtrim +xdel"


async def test_the_rights_that_the_module_names_suffice_and_without_one_the_error_names_no_user(
    make, redis_server
):
    admin = make(redis_server.url).client
    rights = ["on", ">secret", "~{hints*", "-@all", *RIGHTS.split()]
    await admin.execute_command("ACL", "SETUSER", "clerk", *rights)
    url = redis_server.url.replace("//", "//clerk:secret@")
    depot = await make(url).depot()
    epochs = await own(depot, "ann", 0)
    await depot.put([(0, CHANGED), (0, touched(1))])
    end = (await depot.read({0: 0}, 10))[0][-1].offset + 1
    await depot.wait(0.01)
    assert await depot.commit("ann", {0: Progress(epochs[0], end, end, [end])}) == set()
    await depot.release("ann", epochs)
    await depot.leave("ann")
    await depot.put([(0, CHANGED)])
    [lag, *_] = await depot.lag()
    await depot.drop(0, lag.end)

    await admin.execute_command("ACL", "SETUSER", "clerk", "-xadd")
    with pytest.raises(Forbidden) as refused:
        await depot.put([(0, CHANGED)])
    assert "clerk" not in str(refused.value)


async def test_lag_reads_what_clients_have_sent_before_any_updater_and_writes_nothing(make, redis_server):
    world = make(redis_server.url)
    nobody = world.closed_depot()
    _, touches, kept = streams.keys_of("hints", 1)
    await world.client.xadd(kept, {"pack": CHANGED}, "7-0")
    await world.client.xadd(touches, {"pack": touched(1)}, "8-0")
    assert [each.packs for each in await nobody.lag()] == [0, 2, 0]
    assert not await world.client.exists(streams.roster_key("hints"))
    unnamed = RedisDepot(
        streams.parse(f"{redis_server.url}?stream=hints"), observer=world.observer, notices=world.notices
    )
    assert list(await unnamed.lag()) == []
    await unnamed.close()


async def test_the_rights_suffice_in_a_cluster_too(make, redis_cluster):
    rights = ["on", ">secret", "~{hints*", "-@all", *RIGHTS.split(), "+cluster", "+command"]
    for node in redis_cluster.nodes:
        redis_cluster.tell(node, "ACL", "SETUSER", "clerk", *rights)
    depot = await make(redis_cluster.url.replace("//", "//clerk:secret@")).depot()
    epochs = await own(depot, "ann", 0, 1, 2)
    await depot.put([(0, CHANGED), (1, CHANGED)])
    ends = {each: said[-1].offset + 1 for each, said in (await depot.read({0: 0, 1: 0}, 10)).items()}
    progress = {each: Progress(epochs[each], end, end) for each, end in ends.items()}
    assert await depot.commit("ann", progress) == set()
    await depot.leave("ann")
    for node in redis_cluster.nodes:
        redis_cluster.tell(node, "ACL", "DELUSER", "clerk")


async def test_the_example_of_the_wire_format_adds_a_touch(make, redis_server):
    tool = redis_server.executable.with_name("redis-cli")
    if not tool.exists():
        pytest.skip("no redis-cli beside redis-server")
    page = (ROOT / "docs" / "reference" / "wire.md").read_text()
    example = page.partition("## Redis Streams")[2].partition("```shell\n")[2].partition("```")[0]
    command = example.replace("redis-cli", f"{tool} -p {redis_server.port}")
    done = await asyncio.create_subprocess_exec("sh", "-c", command, cwd=ROOT)
    assert await done.wait() == 0
    depot = await make(redis_server.url, partitions=12).depot()
    [pack] = await payloads(depot, 2)
    assert decode_pack(pack).keys == [b"product:7"]


# --- waiting ------------------------------------------------------------------------------------------------


async def test_a_wait_asks_redis_nothing_until_a_pack_comes(make):
    world = make()
    depot = await world.depot()
    await depot.read({0: 0, 1: 0}, 10)
    await world.client.config_resetstat()
    waiting = asyncio.ensure_future(depot.wait(SOON))

    async def blocked():
        return (await world.client.info("clients"))["blocked_clients"] == 1

    await until(blocked)
    await asyncio.sleep(0.1)
    asked = (await world.client.info("commandstats")).get("cmdstat_xread", {"calls": 1})["calls"]
    assert asked == 1
    assert not waiting.done()
    await depot.put([(1, CHANGED)])
    async with asyncio.timeout(SOON):
        await waiting


async def test_a_wait_ends_when_another_partition_is_read_since_it_does_not_look_there(make):
    depot = await make().depot()
    await depot.read({0: 0}, 10)
    waiting = asyncio.ensure_future(depot.wait(10 * SOON))
    await depot.read({0: 0}, 10)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await depot.read({1: 0}, 10)
    async with asyncio.timeout(SOON):
        await waiting
    waiting = asyncio.ensure_future(depot.wait(10 * SOON))
    await asyncio.sleep(0.05)
    await depot.put([(1, CHANGED)])
    async with asyncio.timeout(SOON):
        await waiting


async def test_packs_of_a_partition_that_is_not_read_any_more_end_no_wait(make):
    """Its reader has no room. Waits that end at once would only ask Redis again and again."""
    depot = await make().depot()
    await depot.read({0: 0}, 10)
    await depot.put([(0, CHANGED)])
    await depot.wait(SOON)
    await depot.read({1: 0}, 10)
    waiting = asyncio.ensure_future(depot.wait(10 * SOON))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await depot.put([(1, CHANGED)])
    async with asyncio.timeout(SOON):
        await waiting


async def test_a_wait_ends_in_time_while_redis_is_away(make, redis_server):
    depot = await make(redis_server.url).depot()
    await depot.read({0: 0}, 10)
    redis_server.kill()
    async with asyncio.timeout(SOON):
        await depot.wait(0.2)
    with pytest.raises(Unavailable):
        await depot.read({0: 0}, 10)
