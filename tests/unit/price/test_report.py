"""The report for people, after a policy has had known reads and loads."""

from __future__ import annotations

import json
from math import inf
from random import Random

import numpy as np
import pytest

from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.hints import Kind
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.policy import Loaded
from cacheupdater.price import Market, Price
from cacheupdater.price.key_sample import KeySample, joined, key_sample
from cacheupdater.price.report import (
    TIMES,
    Ahead,
    Gain,
    columns_of,
    describe,
    gains_of,
    look_ahead,
    plain,
)
from cacheupdater_client.protocol.patterns import Pattern


class Shop:
    """Two priced namespaces of one source and one policy; time is ours."""

    def __init__(self, budget=100.0, *, max_age=None):
        self.source = Source("main", Bucket(budget, budget, now=0.0), concurrency=5)
        self.product = self.space("product", Terms())
        self.basket = self.space("basket", Terms(max_age=max_age))
        fixed = self.space("banner", None)
        names = [self.product, self.basket, fixed]
        self.market = Market(self.source, names[:2], random=Random(1).random, now=0.0)
        self.keyspace = Keyspace([(each.pattern, each) for each in names])
        self.policy = Price(self.keyspace, names, {self.source: self.market}, limits=Limits(), now=0.0)

    def space(self, name, terms):
        return Namespace(name, Pattern.compile(f"{name}:{{id:int}}"), self.source, terms=terms)

    def read(self, name, ids, now, count=1):
        keys = [b"%s:%d" % (name.encode(), each) for each in ids]
        return self.policy.on_hints(keys, [count] * len(keys), now)

    def load(self, keys, now, *, changed=False):
        keys = list(keys)
        self.policy.on_loaded(Loaded(Kind.TOUCH, keys, [changed] * len(keys), now, []), now)

    def live(self, seconds=60):
        """Every key is read each second; what is asked for is loaded, products have always changed."""
        for now in range(1, seconds + 1):
            asked = [
                *self.read("product", range(200), float(now)),
                *self.read("basket", range(50), float(now)),
            ]
            asked += self.policy.tick(now + 0.5)
            products = [key for key in asked if key.startswith(b"product")]
            baskets = [key for key in asked if key.startswith(b"basket")]
            self.source.bucket.take(len(asked))
            self.load(products, now + 0.6, changed=True)
            self.load(baskets, now + 0.6)
        return seconds + 1.0

    def report(self, now):
        columns = columns_of(self.market, self.policy.spaces, key_sample(self.policy, 0, now))
        gains = [
            Gain(least, found.spent, found.stale)
            for least in gains_of(self.market)
            for found in [look_ahead(self.market, columns.keys, least=least)]
        ]
        ahead = Ahead([look_ahead(self.market, columns.keys, times=times) for times in TIMES], gains)
        return describe(self.market, columns, ahead, now=now, since=0.0)


@pytest.fixture(scope="module")
def lived():
    shop = Shop(max_age=5.0)
    return shop, shop.report(shop.live())


def test_reads_keys_and_budget_are_those_that_were(lived):
    shop, report = lived
    assert (report.whole.name, report.unit, report.budget) == ("main", "rows", 100.0)
    assert report.whole.learned == 250
    assert {each.name: each.learned for each in report.namespaces} == {"product": 200, "basket": 50}
    assert report.whole.reads == pytest.approx(250.0, rel=0.05)
    assert report.used == pytest.approx(shop.market.spent_lately(61.0) / 100.0)
    assert report.price == shop.market.price


def test_an_updater_whose_keys_nobody_reads_has_used_nothing_of_its_budget():
    """No key is known, so nobody follows the market: its first guess is no figure."""
    shop = Shop()

    assert shop.report(60.0).used == pytest.approx(0.0, abs=1e-6)


def test_useful_is_the_share_of_loads_that_found_a_change(lived):
    _, report = lived
    assert {each.name: each.useful for each in report.namespaces} == {"product": 1.0, "basket": 0.0}
    assert 0.0 < report.whole.useful < 1.0


def test_the_measured_share_stands_beside_the_estimated_one_between_its_limits(lived):
    _, report = lived
    product, basket = report.namespaces
    assert product.draws + basket.draws == report.whole.draws > 10
    for each in (product, basket, report.whole):
        assert each.stale_measured_low <= each.stale_measured <= each.stale_measured_high
    assert product.stale_measured > basket.stale_measured
    assert product.stale_estimated > basket.stale_estimated


def test_twice_the_budget_is_shown_fresher_than_half(lived):
    _, report = lived
    half, same, twice = report.outlook
    assert (half.budget, same.budget, twice.budget) == (50.0, 100.0, 200.0)
    assert half.stale > same.stale > twice.stale
    assert half.price > same.price > twice.price


def test_smaller_least_gain_is_shown_to_spend_more_for_fewer_stale_reads(lived):
    shop, report = lived
    assert [each.least_gain for each in report.gains] == [0.0, 0.01, 0.02, 0.04, 0.1]
    keys = columns_of(
        shop.market,
        shop.policy.spaces,
        key_sample(shop.policy, 0, float(shop.policy.table.times[:, 0].max())),
    ).keys
    found = [look_ahead(shop.market, keys, times=100.0, least=least) for least in (0.0, 0.5, 1.0, 2.0)]
    spent, stale = ([getattr(each, column) for each in found] for column in ("spent", "stale"))
    assert spent == sorted(spent, reverse=True)
    assert stale == sorted(stale)
    assert spent[1] <= 250.0 < spent[0], "a row per read"
    assert spent[-1] < spent[1]


def test_keys_not_worth_the_price_are_starved_with_their_share_of_reads():
    shop = Shop()
    shop.policy.born = -inf  # counts stand for the whole of their memory
    shop.read("product", range(100), 1.0, count=1000)
    shop.read("basket", range(100), 1.0, count=1)
    shop.market.price = 5.0  # between what one and what a thousand reads are worth
    shop.policy.spaces.refresh()
    report = shop.report(1.0)
    product, basket = report.namespaces
    assert (product.starved, basket.starved) == (0, 100)
    assert (product.starved_reads, basket.starved_reads) == (0.0, 1.0)
    assert report.whole.starved == 100
    assert report.whole.starved_reads == pytest.approx(1 / 1001, rel=1e-3)


def test_before_anything_was_read_there_are_numbers_all_the_same():
    report = Shop().report(0.0)
    assert report.whole.reads == report.whole.learned == report.whole.starved_reads == 0
    assert (report.whole.stale_measured, report.whole.useful) == (None, None)
    shop = Shop()
    assert describe(shop.market, None, Ahead(), now=0.0, since=0.0).outlook == ()


def test_a_report_is_plain_json(lived):
    _, report = lived
    page = json.loads(json.dumps(plain([report]), allow_nan=False))
    [source] = page["sources"]
    assert (source["name"], source["unit"], len(source["outlook"])) == ("main", "rows", 3)
    assert [each["name"] for each in source["namespaces"]] == ["product", "basket"]


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_census_of_many_keys_knows_their_number_and_their_reads(monkeypatch, pieces):
    shop, number = Shop(), 40_000
    shop.policy.born = -inf  # counts stand for the whole of their memory
    monkeypatch.setattr("cacheupdater.price.key_sample.PIECE", number // pieces)
    ids = np.arange(number)
    for count in (1, 10, 1000):
        shop.read("product", ids[: number // count], 1.0, count=count)
    parts = [
        key_sample(shop.policy, start, 1.0, most=2000 // pieces)
        for start in range(0, number, number // pieces)
    ]
    found = joined(parts)
    assert isinstance(found, KeySample)
    assert len(found.mu) <= 2000
    assert found.weight.sum() == pytest.approx(number, rel=0.03)
    true = (number + number // 10 * 10 + number // 1000 * 1000) / 300.0
    assert (found.weight * found.mu).sum() == pytest.approx(true, rel=0.03)
    hottest = np.sort(found.mu)[::-1][: number // 1000]
    assert hottest.min() > 1000 / 300.0  # none of those that matter most is left out


def test_forgotten_keys_are_in_no_key_sample():
    shop = Shop()
    shop.read("product", range(100), 1.0)
    shop.policy._forget(shop.policy.table.find([b"product:%d" % each for each in range(40)]))
    assert key_sample(shop.policy, 0, 1.0).weight.sum() == 60
