"""Rows that are not worth their cost are not spent: a least gain per row, a row per read, and keys that are not read any more."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from stories.price import Desk, World, keys, priced, source

from cacheupdater.price.market import PRICE_MIN, Market

LEAST = 0.02  # the default
A = b"p:1"


def shop(reads, changes, *, rate=500.0, least=LEAST, number=25):
    """Keys that are read and change `reads` and `changes` times a second together."""
    mu, lam = np.full(number, reads / number), np.full(number, changes / number)
    return World(Desk(rate=rate, least=least), keys(number), mu, lam, seed=1)


# --- nobody reads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reads", "changes"), [(180.0, 3.8), (2.5, 2.5)])
def test_keys_that_were_read_for_a_minute_cost_no_more_rows_than_reads_and_then_none(reads, changes):
    """At 500 rows/s, 25 keys that nobody read any more used to cost 3,431 rows in two minutes."""
    world = shop(reads, changes).play(60, step=0.1)
    assert 0 < world.rows <= world.reads + 25  # of a key that nobody knows its first read asks, and its draw
    world.mu[:] = 0.0
    idle = [world.play(60, step=0.3).rows for _ in range(5)]

    assert idle[0] <= 0.02 * 500 * 60
    assert max(idle[1:]) <= 0.01 * 500 * 60
    assert idle[4] == 0


def test_key_is_unread_after_ten_of_its_usual_intervals_until_its_next_read():
    desk = Desk()
    for second in range(100):
        desk.read(A, at=float(second))
    desk.load(A, at=99.0, changed=True)
    desk.market.price = PRICE_MIN
    desk.policy.spaces.refresh()
    asked = {at: desk.tick(at) for at in np.arange(99.5, 140.0, 0.02).tolist()}
    first = min(at for at, some in asked.items() if some)
    desk.load(A, at=first)
    later = [at for at in asked if at > first and asked[at]]
    assert not [at for at in later if at > 120.0]

    desk.policy.spaces.refresh()
    assert desk.read(A, at=141.0) == [A]


def test_short_pause_makes_no_key_unread_however_often_it_was_read():
    desk = Desk(rate=1_000.0)
    for turn in range(1_000):
        desk.read(A, at=turn * 0.05, counts=[5])
    desk.market.price = PRICE_MIN
    desk.policy.spaces.refresh()
    desk.load(A, at=50.0, changed=True)

    assert [A] in [desk.tick(at) for at in np.arange(51.0, 54.9, 0.02)]


def test_greatest_age_is_kept_while_anybody_reads_and_not_for_nobody():
    db = source(100.0)
    market = Market(db, [space := priced(at=db, max_age=5.0)], random=Random(1).random, now=0.0, least=1e3)
    desk = Desk(space, market=market)
    world = World(desk, keys(10), np.full(10, 1.0), np.full(10, 1e-3), seed=1).play(60, step=0.1)
    assert world.oldest < 6.0
    assert world.rows >= 100
    world.mu[:] = 0.0
    world.play(60, step=0.1)

    assert world.play(60, step=0.1).rows == 0


# --- hardly worth it ---------------------------------------------------------------------------------------


def test_nothing_is_bought_below_the_least_gain_and_without_one_the_least_price_is_what_it_was():
    for least, lowest in ((0.0, PRICE_MIN), (0.3, 0.3)):
        market = shop(10.0, 0.1, least=least).play(60, step=0.2).desk.market
        assert market.floor == lowest
        assert market.price >= lowest


def test_larger_least_gain_costs_fewer_rows_and_is_less_fresh():
    rich, mean = (
        shop(500.0, 5.0, least=least).play(20, step=0.1).play(20, step=0.1) for least in (0.01, 1.0)
    )

    assert mean.rows < 0.5 * rich.rows
    assert mean.share > rich.share


def test_reads_are_measured_whatever_a_row_must_gain():
    world = shop(100.0, 1.0, least=1e3).play(40, step=0.1)
    measured = world.desk.market.sampler.measured(0.0)

    assert measured is not None
    assert measured.draws > 100


def test_what_a_row_must_gain_is_said_of_the_mean_row_where_time_is_the_budget():
    db = source(100.0, timed=True)
    space = priced(at=db)
    for _ in range(200):
        space.cost.settle(1, 0.0, 8.0)
    market = Market(db, [space], random=Random(1).random, now=0.0, least=0.4)

    assert market.floor == pytest.approx(0.4 / 8.0, rel=0.01)


def test_fleet_hears_what_more_budget_would_buy_and_not_what_a_row_must_gain():
    plain, choosy = (shop(100.0, 1.0, least=least).play(60, step=0.2).desk.market for least in (0.0, 5.0))
    assert choosy.price >= 5.0
    assert choosy.scarcity == PRICE_MIN

    short, choosy = (shop(500.0, 50.0, rate=2.0, least=least).play(60, step=0.2) for least in (0.0, LEAST))
    assert choosy.desk.market.scarcity == pytest.approx(short.desk.market.scarcity, rel=0.5)
    assert plain.scarcity < short.desk.market.scarcity


def test_budget_that_was_not_worth_spending_is_told():
    some, none = shop(100.0, 1.0), shop(500.0, 50.0, rate=2.0)
    for world in (some, none):
        world.play(120, step=0.2)

    assert 0.5 * 500.0 < some.desk.market.unneeded < 500.0
    assert none.desk.market.unneeded < 0.2

    some.desk.market.source.bucket.change(5.0, 5.0, now=some.now)
    assert some.desk.market.unneeded == 5.0, "never more than the budget, which was cut just now"
