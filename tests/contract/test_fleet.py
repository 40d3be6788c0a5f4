"""The contract of a fleet with the pipeline: one suite for Redis and for its fake."""

from __future__ import annotations

import pytest
from servers.redis_places import worlds

from cacheupdater.adapters import fleet_redis
from cacheupdater.adapters.fleet_redis import RedisFleet
from cacheupdater.core import shares
from cacheupdater.core.shares import Owner
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Grant, Offer
from cacheupdater.testing import memory_fleet
from cacheupdater.testing.memory_fleet import MemoryFleet, MemoryRecords

pytestmark = pytest.mark.usefixtures("patient")

BUDGET = 100.0
SECOND = 20.0  # real seconds that stand for one: a real server's clock goes on between two calls
CLAIM_LIFE, WAITING, YOUTH = (SECOND * each for each in (shares.CLAIM_LIFE, shares.WAITING, shares.YOUTH))


@pytest.fixture(autouse=True)
def slow_clock(monkeypatch):
    for module in (fleet_redis, memory_fleet):
        for name in ("CLAIM_LIFE", "WAITING", "YOUTH"):
            monkeypatch.setattr(module, name, SECOND * getattr(shares, name))


class Real:
    """Redis. Time passes by making everything in the record older."""

    record = "cacheupdater:fleet:shop:main"

    def __init__(self, url, client):
        self.url = url
        self.client = client
        self.fleets = []

    def fleet(self):
        self.fleets.append(RedisFleet(self.url, "shop"))
        return self.fleets[-1]

    async def wait(self, seconds):
        for name, entry in (await self.client.hgetall(self.record)).items():
            if name == "born":
                aged = str(int(entry) - int(seconds * 1000))
            else:
                number, until, *rest = entry.split()
                aged = " ".join([number, str(int(until) - int(seconds * 1000)), *rest])
            await self.client.hset(self.record, name, aged)

    async def lose(self):
        await self.client.flushdb()

    async def close(self):
        for each in self.fleets:
            await each.close()
        await self.client.aclose()


class Memory:
    """The same in memory."""

    def __init__(self):
        self.now = 1000.0
        self.records = MemoryRecords(lambda: self.now)

    def fleet(self):
        return MemoryFleet(self.records)

    async def wait(self, seconds):
        self.now += seconds

    async def lose(self):
        self.records.lose()

    async def close(self):
        """Nothing is open."""


WORLDS = worlds(Real, Memory, decode_responses=True)


@pytest.fixture(params=WORLDS)
async def place(request):
    place = WORLDS[request.param](request.getfixturevalue)
    yield place
    await place.close()


@pytest.fixture
async def grown(place):
    """A record that is not young any more."""
    await place.fleet().exchange("main", offer(0.0))
    await place.wait(YOUTH)
    return place


def offer(wanted, held=0.0, *, budget=BUDGET, price=1.0, aim=0.0, least=0.0):
    return Offer(budget, wanted, held, Owner(price, aim), least)


async def rate(fleet, *args, **named):
    return (await fleet.exchange("main", offer(*args, **named))).rate


async def test_the_first_gets_what_it_wants_and_the_next_what_is_left(grown):
    first, second = grown.fleet(), grown.fleet()

    assert await rate(first, 70.0) == 70.0
    assert await rate(second, 70.0) == 30.0
    assert await rate(first, 50.0, 50.0) == 50.0
    assert await rate(second, 70.0, 30.0) == 50.0


async def test_a_claim_never_counts_less_than_its_owner_holds(grown):
    """The owner learns of a smaller grant only when the answer arrives, and spends the old one until then."""
    first, second = grown.fleet(), grown.fleet()
    assert await rate(first, 100.0) == 100.0

    assert await rate(first, 100.0, 100.0, budget=60.0) == 60.0
    assert await rate(second, 100.0) == 0.0
    assert await rate(first, 60.0, 60.0, budget=60.0) == 60.0
    assert await rate(second, 100.0) == 40.0


async def test_owners_hear_of_one_another(grown):
    first, second = grown.fleet(), grown.fleet()
    await first.exchange("main", offer(10.0, price=2.5, aim=12.0))

    grant = await second.exchange("main", offer(10.0, price=1e-3, aim=0.0))
    assert grant.others == (Owner(2.5, 12.0),)
    assert (await first.exchange("main", offer(10.0, 10.0))).others == (Owner(1e-3, 0.0),)


async def test_less_than_the_least_is_not_granted_and_stays_free(grown):
    first, second = grown.fleet(), grown.fleet()
    assert await rate(first, 95.0) == 95.0

    assert await rate(second, 50.0, least=10.0) == 0.0
    assert await rate(first, 100.0, 95.0) == 100.0


async def test_who_waits_is_served_in_the_order_of_waiting(grown):
    holder, first, second = grown.fleet(), grown.fleet(), grown.fleet()
    assert await rate(holder, 100.0) == 100.0
    assert await rate(first, 100.0, least=100.0) == 0.0
    await grown.wait(1.0)
    assert (await second.exchange("main", offer(100.0, least=100.0))).ahead == 1
    assert await rate(holder, 0.0, least=100.0) == 0.0

    assert await rate(second, 100.0, least=100.0) == 0.0
    assert await rate(holder, 100.0, least=100.0) == 0.0
    assert await rate(first, 100.0, 0.0, least=100.0) == 100.0
    await grown.wait(WAITING + 0.1)  # the second owner has been silent for so long
    assert await rate(first, 0.0, least=100.0) == 0.0
    assert await rate(holder, 100.0, least=100.0) == 100.0


async def test_a_claim_ends_by_itself_when_its_owner_is_silent(grown):
    dead, heir = grown.fleet(), grown.fleet()
    await rate(dead, 100.0)

    await grown.wait(CLAIM_LIFE - SECOND)
    assert await rate(heir, 100.0) == 0.0
    await grown.wait(1.1 * SECOND)
    assert await heir.exchange("main", offer(100.0)) == Grant(100.0, ())


async def test_a_call_that_is_carried_out_late_changes_nothing(grown):
    """Its owner got no answer, and has called again since."""
    first, second = grown.fleet(), grown.fleet()
    await rate(first, 100.0)
    await rate(first, 30.0)

    first._numbers = iter([1])
    with pytest.raises(Unavailable):
        await rate(first, 100.0)
    assert await rate(second, 100.0) == 70.0


async def test_who_leaves_leaves_its_share_at_once(grown):
    first, second = grown.fleet(), grown.fleet()
    await rate(first, 100.0)
    await first.leave("main")

    assert await rate(second, 100.0) == 100.0


async def test_sources_have_nothing_to_do_with_one_another(grown):
    first, second = grown.fleet(), grown.fleet()
    await rate(first, 100.0)

    await second.exchange("other", offer(0.0))
    assert await rate(second, 100.0) == 0.0


async def test_in_a_new_record_nobody_gets_more_than_it_holds(place):
    """Redis may have lost the old record: owners that are not in the new one yet still spend what they had."""
    first, second = place.fleet(), place.fleet()
    assert await rate(first, 100.0) == 0.0
    await place.wait(YOUTH)
    assert await rate(first, 60.0) == 60.0
    await place.lose()

    assert await rate(second, 100.0) == 0.0
    assert await rate(first, 100.0, 60.0) == 60.0
    await place.wait(YOUTH - SECOND)
    assert await rate(second, 100.0) == 0.0
    assert await rate(first, 60.0, 60.0) == 60.0
    await place.wait(1.1 * SECOND)
    assert await rate(second, 100.0) == 40.0


async def test_a_claim_that_a_lost_record_held_is_given_to_nobody_while_its_owner_may_believe_in_it(grown):
    """The owner cannot repeat its claim, and the others hold nothing: to them the record looks like a new fleet's."""
    cut_off, heir = grown.fleet(), grown.fleet()
    assert await rate(cut_off, 100.0) == 100.0
    await grown.lose()

    assert await rate(heir, 100.0) == 0.0
    await grown.wait(CLAIM_LIFE - SECOND)
    assert await rate(heir, 100.0) == 0.0
    await grown.wait(1.1 * SECOND)
    assert await rate(heir, 100.0) == 100.0
