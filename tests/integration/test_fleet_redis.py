"""The fleet's script on real servers: calls that come late, clocks that step, servers that refuse, hang and forget."""

from __future__ import annotations

import asyncio
import random

import pytest
import redis.asyncio
from pace import PATIENCE_S
from redis.crc import key_slot

from cacheupdater.adapters.fleet_redis import RedisFleet
from cacheupdater.core.price.shares import CLAIM_LIFE, Owner
from cacheupdater.errors import Faulty, Misconfigured, Unavailable
from cacheupdater.ports import Offer

RECORD = "cacheupdater:fleet:shop:main"
BUDGET = 100.0
OLD = "1"  # ms since 1970: the record was born long ago


@pytest.fixture
async def client(redis_url):
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
    assert int(until) <= (seconds + CLAIM_LIFE + 2) * 1000
    assert int(await client.hget(RECORD, "born")) < later


async def test_what_is_no_entry_is_removed(fleets, client):
    await client.hset(RECORD, mapping={"x": "nonsense", "y": ""})

    assert (await fleets().exchange("main", offer(100.0))).rate == 100.0
    assert len(await client.hgetall(RECORD)) == 2


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
    await fleet.exchange("main", offer(1.0))
    redis_server.pause()
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable, match="did not answer"):
        await fleet.exchange("main", offer(1.0))
    assert asyncio.get_running_loop().time() - began < 2.0
    redis_server.resume()
    await fleet.exchange("main", offer(1.0))
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
    await fleet.exchange("main", offer(1.0))
    node = redis_cluster.owner(RECORD)
    getattr(node, end)()
    with pytest.raises(Unavailable):
        await fleet.exchange("main", offer(1.0))
    await until_granted(fleet)
    redis_cluster.heal()


async def test_fleet_in_a_cluster_follows_its_record_and_brings_its_script(redis_cluster, fleets):
    fleet = fleets(redis_cluster.url)
    await fleet.exchange("main", offer(1.0))
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
    await fleet.exchange("main", offer(1.0))
    after = await asyncio.to_thread(redis_sentinels.failover)  # the one before still takes writes
    redis_sentinels.tell(after, "DEL", RECORD)
    await fleet.exchange("main", offer(1.0))
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
