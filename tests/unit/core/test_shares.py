"""Shares of a budget: they add up, they move with the prices, and in an economy they settle where prices are equal."""

from __future__ import annotations

from math import inf, nan
from random import Random

import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.shares import EXCHANGE_EVERY, LEAST, STEP_MAX, Owner, aim
from cacheupdater.price import Market
from cacheupdater_client.protocol.patterns import Pattern

BUDGET = 200.0


def aims(owners, budget=BUDGET, **named):
    return [aim(each, owners[:at] + owners[at + 1 :], budget, **named) for at, each in enumerate(owners)]


def test_who_is_alone_wants_everything():
    assert aim(Owner(7.0, 0.0), [], BUDGET) == BUDGET


def test_rows_move_to_the_dearer_one_little_by_little():
    cheap, dear = aims([Owner(1.0, 100.0), Owner(3.0, 100.0)])

    assert 100.0 < dear < 112.0
    assert cheap + dear == pytest.approx(BUDGET)


def test_equal_prices_move_nothing():
    assert aims([Owner(2.0, 20.0), Owner(2.0, 180.0)]) == pytest.approx([20.0, 180.0])


def test_a_newcomer_is_reckoned_with_as_one_of_many():
    assert aims([Owner(2.0, 100.0), Owner(2.0, 100.0), Owner(2.0, 0.0)]) == pytest.approx([75.0, 75.0, 50.0])


@pytest.mark.parametrize("price", [0.0, -1.0, nan, inf])
def test_where_somebody_knows_no_price_all_want_the_same(price):
    assert aims([Owner(price, 20.0), Owner(3.0, 180.0)]) == [100.0, 100.0]


def test_aims_are_the_budget_and_nobody_gets_nothing_whatever_owners_tell():
    for seed in range(300):
        draw = Random(seed)
        owners = [
            Owner(10.0 ** draw.uniform(-300, 300), draw.choice((0.0, nan, draw.uniform(0.0, 400.0), 1e-9)))
            for _ in range(draw.randint(1, 9))
        ]
        least = draw.choice((0.0, 1.0, 1000.0))
        found = aims(owners, least=least)
        equal = BUDGET / len(owners)
        assert sum(found) == pytest.approx(BUDGET)
        assert min(found) >= min(equal, max(least, LEAST * equal)) * (1 - 1e-9)


def test_no_price_moves_a_share_by_more_than_a_step():
    small, large = aims([Owner(1e9, 100.0), Owner(1e-3, 100.0)])

    assert small / large <= STEP_MAX**2 * (1 + 1e-9)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "elasticity",
    [pytest.param(0.5, marks=pytest.mark.prove), 1.0, pytest.param(2.0, marks=pytest.mark.prove)],
)
def test_in_an_economy_prices_become_equal_and_stay_so(elasticity):
    """Real markets: each loads what is worth its price, as long as its bucket pays."""
    owners = [Trader(need, elasticity) for need in (100.0, 300.0, 900.0)]
    seen = []
    for step in range(1, 45_000):
        now = step * 0.02
        for each in owners:
            each.trade(now)
        if step % round(EXCHANGE_EVERY / 0.02) == 0:
            for each, wanted in zip(owners, aims([each.owner for each in owners]), strict=True):
                each.obey(wanted, now)
            seen.append([each.owner.aim for each in owners])

    best = [BUDGET * each.need / 1300.0 for each in owners]
    for late in seen[120:]:  # from the tenth minute on
        assert late == pytest.approx(best, rel=0.15)


class Trader:
    """An owner whose keys are worth loading so many times a second at a price."""

    def __init__(self, need, elasticity):
        self.need, self._elasticity = need, elasticity
        self.bucket = Bucket(BUDGET / 3, BUDGET / 3, now=0.0)
        source = Source("main", self.bucket, concurrency=5)
        priced = Namespace("p", Pattern.compile("p:{id:int}"), source, terms=Terms())
        self.market = Market(source, [priced], random=lambda: 0.5, now=0.0)
        self._due = 0.0

    @property
    def owner(self):
        return Owner(self.market.scarcity, self.bucket.rate)

    def trade(self, now):
        self.market.advance(now)
        wanted = self.need / self.market.price**self._elasticity
        self._due += 0.02 * wanted
        rows = min(int(self._due), self.bucket.rows(now))
        self.bucket.take(rows)
        self._due = min(self._due - rows, 2.0 * wanted)

    def obey(self, rate, now):
        self.bucket.change(rate, rate, now=now)
