"""One price per source: it moves until spending meets the budget, or the target."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from stories.price import Desk, World, keys, priced, source

from cacheupdater.price.market import PRICE_MAX, PRICE_MIN, Market


def market(rate=100.0, **changed):
    db = source(rate)
    return Market(db, [priced(at=db)], random=Random(1).random, now=0.0, **changed)


def trade(it, wanted, *, seconds, start=0.0, step=0.02):
    """Each moment some loads are on offer, worth 10**u stale reads each; what is worth its price is bought."""
    rng = np.random.default_rng(1)
    bucket, spent, now = it.source.bucket, 0, start
    for _ in range(round(seconds / step)):
        now += step
        it.advance(now)
        offers = 10.0 ** rng.normal(0.0, 1.0, rng.poisson(wanted * step))
        bought = min(int((offers >= it.price).sum()), bucket.rows(now))
        bucket.take(bought)
        spent += bought
    return spent / seconds


def test_price_rises_while_more_is_spent_than_comes_in():
    it = market()
    before = it.price
    for at in range(1, 11):
        it.source.bucket.level(float(at))
        it.source.bucket.take(200.0)
        it.advance(float(at))

    assert it.price > 1.2 * before


def test_nobody_reads_of_less_than_nothing_spent_where_loads_that_never_left_give_back():
    it = market()
    it.source.bucket.set_apart(5.0)
    it.advance(1.0)
    it.source.bucket.put_back(5.0, 0.5, 1.5)

    for at in (2.0, 40.0):
        assert it.spent_lately(at) >= 0.0


def test_price_falls_while_the_bucket_overflows():
    it = market()
    before = it.price
    for at in range(1, 11):
        it.advance(float(at))

    assert it.price < before / 1.2


def test_what_is_due_counts_as_spent_already():
    it, other = market(), market()
    it.depths["all"] = other.depths["all"] = 2_000.0
    other.source.due = 100.0
    for at in range(1, 11):
        it.advance(float(at))
        other.advance(float(at))

    assert it.room(10.0) == 100.0
    assert other.room(10.0) == 0.0
    assert other.price > it.price


@pytest.mark.parametrize("wanted", [300.0, 3_000.0])
def test_spending_meets_the_budget_in_an_economy_that_offers_more_than_it(wanted):
    it = market(100.0)
    trade(it, wanted, seconds=120)

    assert trade(it, wanted, seconds=120, start=120.0) == pytest.approx(100.0, rel=0.05)


def test_price_finds_its_new_place_when_the_budget_is_changed_live():
    it = market(100.0)
    trade(it, 1_000.0, seconds=120)
    dear = it.price
    it.source.bucket.change(400.0, 400.0, now=120.0)
    trade(it, 1_000.0, seconds=120, start=120.0)

    assert trade(it, 1_000.0, seconds=60, start=240.0) == pytest.approx(400.0, rel=0.08)
    assert it.price < dear


def test_budget_that_nobody_can_use_up_ends_at_the_least_price_and_one_for_nobody_below_the_highest():
    rich, poor = market(1e9), market(1e-3)
    trade(rich, 10.0, seconds=600, step=0.5)
    for at in range(1, 3_000):
        poor.source.bucket.take(1e6)
        poor.advance(float(at))

    assert rich.price == PRICE_MIN
    assert PRICE_MIN < poor.price <= PRICE_MAX


def test_two_partitions_that_advance_one_market_count_spending_once():
    alone, shared = market(), market()
    for at in range(1, 500):
        now = at * 0.1
        for it in (alone, shared):
            it.source.bucket.level(now)
            it.source.bucket.take(15.0)
        alone.advance(now)
        shared.advance(now)
        shared.advance(now)

    assert shared.price == alone.price
    assert shared.spending == pytest.approx(150.0)


def test_clock_that_steps_back_or_stands_still_moves_nothing():
    it = market()
    it.advance(10.0)
    before = it.price
    it.advance(10.0)
    it.advance(-1e9)

    assert it.price == before


def test_price_stays_a_number_after_any_pause():
    it = market()
    for now in (1e-9, 1e3, 1e12):
        it.source.bucket.take(1e9)
        it.advance(now)

        assert PRICE_MIN <= it.price <= PRICE_MAX
        assert np.isfinite(it.spending)


# --- a freshness target ----------------------------------------------------------------------------------


def world(target, rate=200.0):
    desk = Desk(rate=rate, target=target)
    number = 400
    mu = 400.0 / np.arange(1, number + 1) / 6.6
    return World(desk, keys(number), mu, np.full(number, 0.02), seed=3)


@pytest.mark.prove
def test_target_is_met_and_no_more_is_spent_than_it_needs():
    """At full budget 1 % of the reads are stale; whoever asks for 93 % fresh ones keeps most of his rows."""
    full, aimed = world(None), world(0.93)
    full.play(150, step=0.2)
    aimed.play(450, step=0.2)
    full.play(50, step=0.2)
    aimed.play(300, step=0.2)

    assert full.share < 0.03
    assert aimed.share == pytest.approx(0.07, abs=0.02)
    assert aimed.rows / 300 < 0.4 * full.rows / 50


@pytest.mark.prove
def test_target_that_the_budget_cannot_reach_is_the_budget_s_full_use():
    starved = world(0.999, rate=5.0)
    starved.play(300, step=0.1)
    starved.play(200, step=0.1)

    assert starved.rows / 200.0 == pytest.approx(5.0, rel=0.1)


def test_estimate_that_is_wrong_is_put_right_by_what_was_measured():
    it = market(100.0, target=0.9)
    for at in range(1, 400):
        it.meter.add(0, np.array([0]), np.array([100.0]))
        it.meter.add(1, np.array([0]), np.array([5.0]))
        for place in it.sampler.draw(np.array([100.0])):
            it.sampler.known(place, float(at), stale=at % 10 == 0)
        it.advance(float(at))

    assert it.meter.share(1, 0) == pytest.approx(0.05)
    assert it.stale_share() == pytest.approx(0.1, rel=0.35)
