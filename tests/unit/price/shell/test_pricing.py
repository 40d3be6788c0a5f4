"""Learned prices when partitions come and go."""

from __future__ import annotations

import asyncio

import pytest
from stories.engine import limits, namespace, plenty
from stories.shell import in_virtual_time, now
from suite.spending import worst

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.namespace import Terms
from cacheupdater.core.shares import EXCHANGE_EVERY, YOUTH
from cacheupdater.pipeline.notices import Notices
from cacheupdater.price.shell.pricing import CLOCK_EVERY, KEPT_S, Pricing
from cacheupdater.testing.memory_fleet import MemoryFleet, MemoryRecords
from cacheupdater.testing.recording_observer import RecordingObserver

KEYS = [b"p:%d" % n for n in range(40)]


class Shop:
    """One priced namespace; partitions as the supervisor would tell of them."""

    def __init__(self, bucket=None, quota=None):
        source = Source("db", bucket or plenty(), concurrency=5)
        spaces = [namespace("p", source=source, terms=Terms(), quota=quota)]
        self.keyspace = Keyspace([(each.pattern, each) for each in spaces])
        self.pricing = Pricing(
            spaces,
            {},
            limits=limits(),
            random=lambda: 0.5,
            observer=RecordingObserver(),
            notices=Notices(lambda: 0.0),
        )
        (self.market,) = self.pricing.markets.values()

    def gain(self, *partitions):
        policies = [self.pricing.policy(self.keyspace, each, now()) for each in partitions]
        self.pricing.own(partitions, of=4)
        return policies

    def lose_all(self, *policies):
        for each in policies:
            each.leave()
        self.pricing.own((), of=4)


@in_virtual_time
async def test_rebalance_that_gives_a_partition_back_costs_nothing_that_was_learned():
    shop = Shop()
    first, second = shop.gain(0, 1)
    asked = first.on_hints(KEYS, (), now())
    assert asked, "old values that are read are worth a load"
    assert shop.market.tracked == len(KEYS)
    shop.lose_all(first, second)
    assert shop.market.tracked == 0
    await asyncio.sleep(3.0)
    (again,) = shop.gain(0)
    assert again is first
    assert shop.market.tracked == len(KEYS)
    await asyncio.sleep(0.1)  # a bucket opens empty
    assert set(again.on_hints(KEYS, [50] * len(KEYS), now())) == set(asked), (
        "what was asked of the last engine is asked again"
    )


@in_virtual_time
async def test_partition_that_went_to_another_owner_is_forgotten():
    shop = Shop()
    first, second = shop.gain(0, 1)
    shop.lose_all(first, second)
    shop.gain(1)
    assert list(shop.pricing.policies) == [1]


@in_virtual_time
async def test_partition_that_comes_back_late_is_learned_anew():
    shop = Shop()
    (first,) = shop.gain(0)
    first.on_hints(KEYS, (), now())
    shop.lose_all(first)
    await asyncio.sleep(KEPT_S + 1)
    (again,) = shop.gain(0)
    assert again is not first
    assert len(again.table) == 0


@in_virtual_time
async def test_budget_of_a_source_that_nobody_uses_may_change_too():
    shop = Shop()
    shop.pricing.change("spare", 10.0, 10.0, now=now())
    shop.pricing.change("db", 7.0, 7.0, now=now())
    shop.gain(0, 1, 2, 3)
    assert shop.market.source.bucket.rate == 7.0


@in_virtual_time
async def test_least_gain_may_change_while_it_runs():
    shop = Shop()
    shop.pricing.require("spare", 5.0)
    assert shop.market.price < 5.0
    shop.pricing.require("db", 5.0)
    assert shop.market.price == 5.0


@in_virtual_time
async def test_partition_of_a_small_budget_is_served_at_its_moments_on_the_wall_clock_though_clocks_drift():
    shop = Shop(Bucket(10.0, 10.0, now=now()))
    ahead = 1_000_000.0
    shop.pricing.divide(lambda: now() + ahead)
    shop.pricing.own([7], of=48)
    bucket = shop.market.source.bucket
    running = asyncio.ensure_future(shop.pricing.run())

    def moment():
        """Of its next beat, within a round of the wall clock."""
        bucket.rows(now())
        return (bucket.when(1) + ahead) % 4.8

    assert bucket.rows(now() + 100.0) in {0, 1}
    await asyncio.sleep(200.0)
    bucket.take(bucket.rows(now()))
    assert moment() == pytest.approx(0.7, abs=1e-4)
    ahead += 1.7
    await asyncio.sleep(CLOCK_EVERY + 0.1)
    bucket.take(bucket.rows(now()))
    assert moment() == pytest.approx(0.7, abs=1e-4)
    running.cancel()


@in_virtual_time
async def test_policy_asks_for_what_the_next_moment_of_its_partition_can_pay():
    shop = Shop(Bucket(10.0, 10.0, now=now()))
    shop.pricing.divide(lambda: now() + 1_000_000.0)
    (policy,) = shop.gain(3)
    shop.pricing.own([3], of=48)
    asked = []
    for _ in range(100):
        await asyncio.sleep(0.5)
        asked.append(len(policy.on_hints(KEYS, [50] * len(KEYS), now())))
    assert max(asked) == 1


class Sidecars:
    """Updaters of one fleet, each with a queue of its own, that spend all that their quota allows."""

    RATE, BURST = 30.0, 60.0

    def __init__(self, number):
        records = MemoryRecords(now)
        self.spent = []  # (when, rows)
        self.shops = [Shop(quota=Bucket(self.RATE, self.BURST, now=now())) for _ in range(number)]
        self.running = []
        for each in self.shops:
            each.pricing.share(MemoryFleet(records), lambda: None, quotas=True)
            each.pricing.own([0], of=1)
            self.running.append(asyncio.ensure_future(each.pricing.run()))

    def quota(self, number):
        return self.shops[number].pricing.namespaces[0].quota

    async def spend(self, seconds):
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            for number in range(len(self.shops)):
                rows = self.quota(number).rows(now())
                self.quota(number).take(rows)
                self.spent.append((now(), rows))

    async def end(self):
        for each in self.running:
            each.cancel()
        await asyncio.gather(*(each.pricing.end() for each in self.shops))


@in_virtual_time
@pytest.mark.parametrize("number", [1, 3, 40])
async def test_updaters_with_queues_of_their_own_spend_one_quota_together_and_all_of_it(number):
    sidecars = Sidecars(number)
    await asyncio.sleep(YOUTH + 4 * EXCHANGE_EVERY)
    await sidecars.spend(60.0)
    rows = sum(rows for _, rows in sidecars.spent)
    assert worst(sidecars.spent, sidecars.RATE) <= sidecars.BURST + 1e-6
    assert rows > 0.9 * sidecars.RATE * 60.0
    await sidecars.end()


@in_virtual_time
async def test_quota_of_an_updater_that_leaves_is_spent_by_the_other():
    sidecars = Sidecars(2)
    await asyncio.sleep(YOUTH + 4 * EXCHANGE_EVERY)
    assert [sidecars.quota(each).rate for each in (0, 1)] == [15.0, 15.0]
    sidecars.running[0].cancel()
    await sidecars.shops[0].pricing.end()
    assert sidecars.quota(0).rows(now()) == 0
    await asyncio.sleep(2 * EXCHANGE_EVERY)
    assert sidecars.quota(1).rate == 30.0
    await sidecars.end()


@in_virtual_time
async def test_quota_goes_with_the_partitions_where_a_queue_is_shared():
    shop = Shop(quota=Bucket(30.0, 60.0, now=now()))
    shop.pricing.share(MemoryFleet(MemoryRecords(now)), lambda: None, quotas=False)
    shop.gain(1)
    assert shop.pricing.namespaces[0].quota.rate == 7.5
