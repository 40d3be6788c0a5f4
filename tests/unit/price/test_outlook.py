"""The long-run effect of a budget, against closed forms."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cacheupdater.price import outlook as outlooks
from cacheupdater.price.index import poisson
from cacheupdater.price.outlook import Keys, outlook


def keys(mu, rate, *, announced=0.0, cost=1.0, worth=1.0, longest=np.inf, weight=1.0):
    number = len(mu)
    columns = (mu, rate, announced, cost, worth, longest, weight)
    return Keys(*(np.broadcast_to(np.asarray(each, np.float64), number).copy() for each in columns))


def many(seed, number=500):
    random = np.random.default_rng(seed)
    return keys(random.pareto(1.2, number) + 0.01, random.gamma(0.35, 0.3, number) + 1e-9)


def frequencies(known, budget):
    """Loads per second of each key, in the order of its rate."""
    found = outlook(known, budget)
    ordered = outlooks._by_ceiling(known)
    floor = -outlooks._log_ceiling(ordered, ordered.rate)
    tau = outlooks._intervals(ordered, floor, floor, np.log(found.price))
    return dict(zip(ordered.rate.tolist(), (1.0 / tau).tolist(), strict=True))


def test_the_example_of_cho_and_garcia_molina_comes_out_as_printed():
    known = keys(np.ones(5), np.arange(1.0, 6.0))
    found = frequencies(known, 5.0)
    assert [found[rate] for rate in (1.0, 2.0, 3.0, 4.0, 5.0)] == pytest.approx(
        [1.15, 1.36, 1.35, 1.14, 0.0], abs=0.006
    )
    assert outlook(known, 5.0).starved == pytest.approx(0.2)


def test_equal_keys_share_the_budget_equally():
    found = outlook(keys(np.ones(10), np.full(10, 0.5)), 5.0)  # each every 2 s, x = 1
    assert found.stale == pytest.approx(np.exp(-1.0), rel=1e-4)
    assert found.price == pytest.approx(
        float(poisson(np.ones(1), np.full(1, 0.5), np.full(1, 2.0))[0]), rel=1e-3
    )
    assert (found.starved, found.starved_reads) == (0.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_budget_is_spent_and_more_of_it_is_fresher_and_cheaper(seed):
    found = [outlook(many(seed), budget) for budget in (5, 10, 20, 40, 80, 160)]
    assert [each.spent for each in found] == pytest.approx([each.budget for each in found], rel=1e-3)
    for poor, rich in pairwise(found):
        assert rich.stale < poor.stale
        assert rich.price < poor.price
        assert rich.starved <= poor.starved
        assert rich.starved_reads <= poor.starved_reads


@pytest.mark.parametrize("seed", range(3))
def test_no_other_way_to_spend_the_budget_is_fresher(seed):
    known, random = many(seed, 40), np.random.default_rng(seed)
    best = outlook(known, 8.0)
    for _ in range(200):
        share = random.dirichlet(np.full(40, 0.5)) * 8.0 + 1e-12
        x = known.rate / share
        stale = (known.mu * (1.0 + np.expm1(-x) / x)).sum() / known.mu.sum()
        assert stale >= best.stale - 1e-6


def test_a_key_stands_for_as_many_as_its_weight_says():
    once, thrice = many(1), many(1)
    thrice = thrice._replace(weight=thrice.weight * 3.0)
    few, more = outlook(once, 10.0), outlook(thrice, 30.0)
    assert more._replace(budget=0.0, spent=0.0) == pytest.approx(
        few._replace(budget=0.0, spent=0.0), rel=1e-6
    )


def test_dear_rows_are_loaded_less_and_worthy_ones_more():
    plain = outlook(keys(np.ones(2), np.full(2, 0.1)), 0.5)
    assert plain.stale < outlook(keys(np.ones(2), np.full(2, 0.1), cost=2.0), 0.5).stale
    dear = frequencies(keys(np.ones(2), [0.1, 0.1000001], cost=[1.0, 9.0]), 0.5)
    assert dear[0.1] > 2.0 * dear[0.1000001]
    worthy = frequencies(keys(np.ones(2), [0.1, 0.1000001], worth=[1.0, 9.0]), 0.5)
    assert worthy[0.1000001] > 2.0 * worthy[0.1]


def test_what_nobody_needs_is_not_spent():
    found = outlook(keys([0.001], [0.001]), 1e6)
    assert found.spent < 100.0
    assert found.price == pytest.approx(1e-3)


def test_a_greatest_age_keeps_hopeless_keys_loaded():
    starving = keys([0.01, 1.0], [10.0, 0.1])
    assert outlook(starving, 1.0).starved == 0.5
    kept = outlook(starving._replace(longest=np.array([5.0, 5.0])), 1.0)
    assert kept.spent == pytest.approx(1.0, rel=1e-3)
    assert kept.starved == 0.5  # no less is it worth the price; its age is what loads it


def test_greatest_ages_beyond_the_budget_wait_in_proportion():
    found = outlook(keys(np.ones(100), np.full(100, 0.1), longest=1.0), 10.0)
    assert found.spent == pytest.approx(10.0)
    assert found.stale == pytest.approx(1.0 - (1.0 - np.exp(-1.0)), rel=1e-6)  # every 10 s: x = 1


def test_announced_changes_cost_rows_and_leave_reads_fresh():
    told = outlook(keys(np.full(10, 5.0), np.full(10, 1e-9), announced=0.1), 2.0)
    silent = outlook(keys(np.full(10, 5.0), np.full(10, 0.1)), 2.0)
    assert told.stale < 0.001 < silent.stale
    assert 0.9 <= told.spent <= 2.0


def test_nothing_known_is_nothing_spent():
    assert outlook(keys(np.ones(0), np.ones(0)), 10.0).stale == 0.0


def test_the_inverse_of_the_index_is_exact():
    x = np.geomspace(1e-6, 30.0, 500)
    y = np.where(x < 1e-3, x * x / 2.0 - x**3 / 3.0, -(np.expm1(-x) + x * np.exp(-x)))
    assert outlooks._inverse(np.log(y)) == pytest.approx(x, rel=2e-3)
    small = x < 10.0
    assert outlooks._inverse(np.log(y))[small] == pytest.approx(x[small], rel=1e-4)
