"""The fleet's script on real servers: calls that come late, clocks that step, servers that refuse, hang and forget."""

from __future__ import annotations

import asyncio
import random
from math import isfinite

import pytest
import redis.asyncio
from redis.crc import key_slot
from suite.pace import PATIENCE_S, soonest_of

from cacheupdater.adapters.fleet_redis import RedisFleet
from cacheupdater.core.shares import CLAIM_LIFE, Owner, aim
from cacheupdater.errors import Faulty, Misconfigured, Unavailable
from cacheupdater.ports import Offer

RECORD = "cacheupdater:fleet:shop:main"
BUDGET = 100.0
OLD = "1"  # ms since 1970: the record was born long ago


@pytest.fixture
async def client(redis_url, patient):
    async with redis.asyncio.Redis.from_url(redis_url, decode_responses=True) as client:
        await client.hset(RECORD, "born", OLD)
        yield client


@pytest.fixture
async def fleets(redis_url):
    made = []

    def make(url=redis_url):
        made.append(RedisFleet(url, "shop"))
        return made[-1]

    yield make
    for each in made:
        await each.close()


def offer(wanted, held=0.0):
    return Offer(BUDGET, wanted, held, Owner(1.0, wanted))


async def claims(client):
    return [
        float(entry.split()[2]) for name, entry in (await client.hgetall(RECORD)).items() if name != "born"
    ]


async def test_a_call_that_is_carried_out_late_changes_nothing(fleets, client):
    fleet = fleets()
    await fleet.exchange("main", offer(20.0))
    fleet._numbers = iter([10, 9])
    await fleet.exchange("main", offer(80.0, 20.0))

    with pytest.raises(Unavailable, match="newer call"):
        await fleet.exchange("main", offer(10.0, 10.0))
    assert await claims(client) == [80.0]


async def test_a_clock_that_steps_back_keeps_no_dead_claim_alive(fleets, client):
    seconds, _ = await client.time()
    later = (seconds + 86_400) * 1000
    await client.hset(RECORD, mapping={"born": later, "dead": f"7 {later} 100 1 100"})
    fleet = fleets()

    assert (await fleet.exchange("main", offer(100.0))).rate == 0.0
    _, until, *_ = (await client.hget(RECORD, "dead")).split()
    seconds, _ = await client.time()
    assert int(until) <= (seconds + CLAIM_LIFE + 2) * 1000
    assert int(await client.hget(RECORD, "born")) < later


async def test_what_is_no_entry_is_removed(fleets, client):
    await client.hset(RECORD, mapping={"x": "nonsense", "y": ""})

    assert (await fleets().exchange("main", offer(100.0))).rate == 100.0
    assert len(await client.hgetall(RECORD)) == 2


FAR = "99999999999999"
RUBBISH = {
    "words": f"1 {FAR} 1 abc def",
    "a negative claim": f"1 {FAR} -900 1 1 0",
    "no number for a claim": f"1 {FAR} nan 1 1 0",
    "an endless claim": f"1 {FAR} inf 1 1 0",
    "a claim beyond all numbers": f"1 {FAR} 1e999 1 1 0",
    "a hexadecimal claim": f"1 {FAR} 0x10 1 1 0",
    "a price that is none": f"1 {FAR} 10 nan 1 0",
    "an endless aim": f"1 {FAR} 10 1 inf 0",
    "a negative aim": f"1 {FAR} 10 1 -1e300 0",
    "an end that never comes": f"1 {'9' * 400} 10 1 1 0",
    "a call's number that never comes": f"{'9' * 400} {FAR} 10 1 1 0",
    "waiting since ever": f"1 {FAR} 0 1 1 {'9' * 400}",
    "megabytes": "9" * 3_000_000,
    "bytes": "\0\x01\x7f 1 1 1 1",
    "lines": f"1 {FAR} 1 1\n1 1",
}


@pytest.mark.parametrize("kind", RUBBISH)
async def test_rubbish_in_the_record_lifts_no_budget_and_ends_nobody(fleets, client, kind):
    for name in ("x", "y" * 5000, ""):
        await client.hset(RECORD, name, RUBBISH[kind])
    fleet = fleets()
    grant = await fleet.exchange("main", offer(1000.0))
    assert 0.0 <= grant.rate <= BUDGET
    assert all(isfinite(each) and each >= 0.0 for owner in grant.others for each in owner)
    assert grant.rate + sum(await claims(client)) - grant.rate <= BUDGET + 1e-6
    assert (await fleet.exchange("main", offer(grant.rate, grant.rate))).unsound == 0, "it is gone"
    assert "y" * 5000 not in await client.hgetall(RECORD)


async def test_who_removes_claims_lets_each_have_the_budget_and_nobody_more(fleets, client):
    """What an updater may spend says the record alone; whoever may write to Redis can write that nobody else is there."""
    granted = []
    for fleet in (fleets(), fleets(), fleets()):
        await client.delete(RECORD)
        await client.hset(RECORD, "born", OLD)
        granted.append((await fleet.exchange("main", offer(1000.0))).rate)
    assert granted == [BUDGET] * 3


@pytest.mark.parametrize("kind", ["string", "list", "a hundred thousand owners"])
async def test_a_record_that_is_none_begins_anew_and_gives_nothing_away_meanwhile(fleets, client, kind):
    first = fleets()
    assert (await first.exchange("main", offer(60.0))).rate == 60.0
    await client.delete(RECORD)
    if kind == "string":
        await client.set(RECORD, "x")
    elif kind == "list":
        await client.rpush(RECORD, "x")
    else:
        await client.hset(RECORD, mapping={str(n): f"1 {FAR} 1 1 1" for n in range(100_000)} | {"born": OLD})
    grant = await first.exchange("main", offer(100.0, 60.0))
    assert (grant.rate, grant.unsound) == (60.0, 1)
    assert (await fleets().exchange("main", offer(100.0))).rate == 0.0, "who lives may hold all of it"


@pytest.mark.parametrize("born", ["nan", "-1", "inf", "x", "", "9" * 400, "0x1"])
async def test_a_birth_that_is_none_is_now(fleets, client, born):
    await client.hset(RECORD, "born", born)
    grant = await fleets().exchange("main", offer(100.0))
    assert (grant.rate, grant.unsound) == (0.0, 1)


async def test_who_is_written_over_takes_another_name(fleets, client):
    """A stranger gives our entry a number that we shall never reach: we would be told of newer calls for ever."""
    fleet = fleets()
    assert (await fleet.exchange("main", offer(60.0))).rate == 60.0
    (name,) = set(await client.hgetall(RECORD)) - {"born"}
    await client.hset(RECORD, name, f"999999999999999 {FAR} 0 1 1 0")
    with pytest.raises(Unavailable, match="in our name"):
        await fleet.exchange("main", offer(60.0, 60.0))
    assert (await fleet.exchange("main", offer(60.0, 60.0))).rate == 60.0
    await client.hset(RECORD, fleet._owner, f"999999999999999999999 {FAR} 0 1 1 0")
    assert (await fleet.exchange("main", offer(60.0, 60.0))).unsound == 1


async def test_whatever_stands_in_the_record_nobody_gets_more_than_the_budget(fleets, client):
    draw, fleet = random.Random(7), fleets()
    words = [
        "1",
        "0",
        "-1",
        "nan",
        "inf",
        "1e999",
        "-0",
        "",
        "x",
        "0x9",
        FAR,
        "9" * 30,
        "1.5",
        "1e-300",
        "5e-324",
    ]
    for _ in range(300):
        entry = " ".join(draw.choice(words) for _ in range(draw.randint(1, 8)))
        if draw.random() < 0.7:  # the beginning of one that would be read
            entry = f"1 {FAR} {' '.join(draw.choice(words) for _ in range(3))}"
        await client.hset(RECORD, draw.choice(["x", "y", "z", "born", fleet._owner]), entry)
        try:
            grant = await fleet.exchange("main", offer(1000.0))
        except Unavailable:
            continue
        assert 0.0 <= grant.rate <= BUDGET
        assert 0.0 <= aim(Owner(1.0, 50.0), grant.others, BUDGET) <= BUDGET


async def test_an_answer_that_is_none_of_ours_is_unavailable(fleets, monkeypatch):
    fleet = fleets()
    for said in (
        [],
        [b"x"],
        [b"1", b"2"],
        [b"x", b"0", b"0"],
        [b"1", b"0", b"0", b"y z"],
        [None, 1, 2],
        5,
        None,
    ):

        async def answer(*_, said=said):
            return said

        monkeypatch.setattr(fleet._redis, "run", answer)
        with pytest.raises(Unavailable):
            await fleet.exchange("main", offer(1.0))
    for said, granted in (
        ([b"nan", b"0", b"0"], 0.0),
        ([b"1e9", b"0", b"0"], 5.0),
        ([b"-7", b"0", b"0"], 0.0),
    ):

        async def answer(*_, said=said):
            return said

        monkeypatch.setattr(fleet._redis, "run", answer)
        assert (await fleet.exchange("main", offer(5.0))).rate == granted


async def test_a_server_that_forgot_the_script_is_told_again_and_forgets_an_idle_fleet(fleets, client):
    fleet = fleets()
    await fleet.exchange("main", offer(10.0))
    await client.script_flush()

    assert (await fleet.exchange("main", offer(30.0, 10.0))).rate == 30.0
    assert 0 < await client.ttl(RECORD) <= 86_400


async def test_many_owners_at_once_never_claim_more_than_the_budget(fleets, client):
    draw = random.Random(1)
    owners = [fleets() for _ in range(8)]
    held = dict.fromkeys(owners, 0.0)

    async def live(owner):
        for _ in range(40):
            wanted = draw.uniform(0.0, 60.0)
            held[owner] = min(held[owner], wanted)  # lowered before it is told
            held[owner] = (await owner.exchange("main", offer(wanted, held[owner]))).rate
            assert sum(held.values()) <= BUDGET + 1e-6

    async with asyncio.TaskGroup() as group:
        for each in owners:
            group.create_task(live(each))
    assert sum(held.values()) > 0.9 * BUDGET
    assert sum(await claims(client)) <= BUDGET + 1e-6


async def test_a_user_without_the_right_is_told_which(redis_url, fleets, client):
    await client.acl_setuser(
        "fleetless", enabled=True, passwords=["+x"], keys=["product:*"], commands=["+@all"]
    )
    url = redis_url.replace("://", "://fleetless:x@", 1)
    try:
        with pytest.raises((Faulty, Unavailable), match=r"fleet|permission|NOPERM"):
            await fleets(url).exchange("main", offer(1.0))
    finally:
        await client.acl_deluser("fleetless")


async def test_a_server_that_hangs_or_is_gone_is_unavailable_in_time(redis_server, fleets):
    fleet = fleets(redis_server.url)
    await until_granted(fleet)
    redis_server.pause()

    async def refused():
        with pytest.raises(Unavailable, match="did not answer"):
            await fleet.exchange("main", offer(1.0))

    await soonest_of(refused, 2.0)
    redis_server.resume()
    await until_granted(fleet)
    redis_server.stop()
    with pytest.raises(Unavailable):
        await fleet.leave("main")


async def until_granted(fleet):
    """An exchange works again: a death is noticed after one second, the vote takes another."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await fleet.exchange("main", offer(1.0))
            except Unavailable:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.mark.parametrize("end", ["kill", "pause"])
async def test_fleet_in_a_cluster_finds_the_successor_of_a_dead_node(redis_cluster, fleets, end):
    fleet = fleets(redis_cluster.url)
    await until_granted(fleet)
    node = redis_cluster.owner(RECORD)
    getattr(node, end)()
    with pytest.raises(Unavailable):
        await fleet.exchange("main", offer(1.0))
    await until_granted(fleet)
    redis_cluster.heal()


async def test_fleet_in_a_cluster_follows_its_record_and_brings_its_script(redis_cluster, fleets):
    fleet = fleets(redis_cluster.url)
    await until_granted(fleet)
    before = redis_cluster.owner(RECORD)
    redis_cluster.migrate_slot(key_slot(RECORD.encode()), another(redis_cluster.primaries(), before))
    await until_granted(fleet)
    redis_cluster.tell(redis_cluster.owner(RECORD), "SCRIPT", "FLUSH")
    await until_granted(fleet)
    assert redis_cluster.tell(redis_cluster.owner(RECORD), "EXISTS", RECORD) == 1


def another(nodes, than):
    return next(node for node in nodes if node is not than)


async def test_fleet_under_sentinels_leaves_a_primary_that_was_replaced(redis_sentinels, fleets):
    fleet = fleets(redis_sentinels.url)
    await until_granted(fleet)
    after = await asyncio.to_thread(redis_sentinels.failover)  # the one before still takes writes
    redis_sentinels.tell(after, "DEL", RECORD)
    await until_granted(fleet)
    assert redis_sentinels.tell(after, "EXISTS", RECORD) == 1


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:x/0",
        "redis+cluster://",
        "redis+cluster://h?no_such=1",
        "redis+sentinel://h",
        "http://h",
    ],
)
def test_an_address_that_is_none_is_a_misconfiguration(url):
    with pytest.raises(Misconfigured, match="Redis URL"):
        RedisFleet(url, "shop")
