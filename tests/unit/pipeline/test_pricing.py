"""What happens to learned prices when partitions come and go."""

from __future__ import annotations

import asyncio

import pytest
from engine_story import limits, namespace, plenty
from shell_story import in_virtual_time, now

from cacheupdater.core.budget import Bucket, Source
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.namespace import Terms
from cacheupdater.pipeline.notices import Notices
from cacheupdater.pipeline.pricing import CLOCK_EVERY, KEPT_S, Pricing
from cacheupdater.testing.recording_observer import RecordingObserver

KEYS = [b"p:%d" % n for n in range(40)]


class Shop:
    """One priced namespace; partitions as the supervisor would tell of them."""

    def __init__(self, bucket=None):
        source = Source("db", bucket or plenty(), concurrency=5)
        spaces = [namespace("p", source=source, terms=Terms())]
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
    shop.pricing.demand("spare", 5.0)
    assert shop.market.price < 5.0
    shop.pricing.demand("db", 5.0)
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
