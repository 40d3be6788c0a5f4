"""The columns of a decision, by the number of a namespace."""

from __future__ import annotations

from random import Random

import pytest
from stories.engine import namespace
from stories.price import priced, source

from cacheupdater.core.bucket import Bucket
from cacheupdater.price.market import Market
from cacheupdater.price.spaces import LIFE_MIN, Spaces


def build(*namespaces):
    sources = list(dict.fromkeys(each.source for each in namespaces))
    markets = {
        db: Market(
            db, [n for n in namespaces if n.source is db and n.terms], random=Random(1).random, now=0.0
        )
        for db in sources
    }
    return Spaces(namespaces, markets), [markets[db] for db in sources]


def test_only_namespaces_with_terms_have_numbers():
    db = source()
    fixed, other = namespace("f", source=db), priced("p", at=db)
    spaces, _ = build(fixed, other)

    assert spaces.number == {other: 0}


def test_each_namespace_compares_with_its_own_source_s_price():
    one, two = source(), source()
    a, b, c = priced("a", at=one), priced("b", at=two), priced("c", at=one)
    spaces, (first, second) = build(a, b, c)
    first.price, second.price = 2.0, 7.0
    spaces.refresh()

    assert spaces.price.tolist() == [2.0, 7.0, 2.0]
    assert spaces.within.tolist() == [0, 0, 1]


def test_unknown_key_is_guessed_to_live_as_long_as_the_budget_takes_for_all_keys():
    db = source(10.0)
    spaces, (market,) = build(priced(at=db))
    assert spaces.life.tolist() == [LIFE_MIN]
    market.tracked = 5_000
    spaces.refresh()

    assert spaces.life.tolist() == pytest.approx([500.0])
    assert (spaces.prior / spaces.life).tolist() == pytest.approx([0.35])


def test_budget_changed_live_is_seen_at_the_next_look():
    db = source(10.0)
    spaces, (market,) = build(priced(at=db))
    market.tracked = 5_000
    db.bucket.change(50.0, 50.0, now=0.0)
    spaces.refresh()

    assert spaces.life.tolist() == pytest.approx([100.0])


def test_age_counts_more_where_there_is_a_greatest_age():
    db = source(1.0)
    spaces, (market,) = build(priced("a", at=db), priced("b", at=db, max_age=20.0))
    market.tracked = 1_000
    spaces.refresh()

    assert spaces.kappa.tolist() == pytest.approx([1 / 1_000, 1 / 20])
    assert spaces.max_age.tolist() == [float("inf"), 20.0]


def test_cost_of_a_row_is_what_its_loads_took():
    db = source(100.0, timed=True)
    cheap, dear = priced("c", at=db), priced("d", at=db)
    spaces, _ = build(cheap, dear)
    for _ in range(200):
        cheap.cost.settle(10, 0.0, 5.0)
        dear.cost.settle(10, 0.0, 200.0)
    spaces.refresh()

    assert spaces.cost.tolist() == pytest.approx([0.5, 20.0], rel=0.01)


def test_quota_and_worth_are_where_they_were_said():
    db = source()
    spaces, _ = build(priced("a", at=db), priced("b", at=db, worth=3.0, quota=Bucket(1.0, 1.0, now=0.0)))

    assert spaces.quotas == [1]
    assert spaces.worth.tolist() == [1.0, 3.0]
