"""The shop: popularity and changes of products are independent, and all processes draw the same."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from cacheupdater.demo import plan
from cacheupdater.demo.catalogue import Catalogue, interval


def test_shoppers_with_the_same_seed_look_at_the_same_products():
    first, second, other = (list(islice(Catalogue(seed).shoppers(), 3000)) for seed in (1, 1, 2))
    assert first == second != other


def test_some_products_are_popular_and_all_exist():
    seen = Counter(islice(Catalogue(1).shoppers(), 40_000))
    assert set(seen) == set(range(1, plan.PRODUCTS + 1))
    assert seen.most_common(1)[0][1] > 8 * 40_000 / plan.PRODUCTS


@pytest.mark.parametrize("seed", range(5))
def test_the_hot_ones_have_half_of_the_reads(seed):
    catalogue = Catalogue(seed)
    seen = Counter(islice(catalogue.shoppers(), 20_000))
    share = sum(seen[product] for product in catalogue.products[: plan.HOT]) / 20_000
    assert 0.45 < share < 0.65


def test_a_few_products_change_often_and_half_of_them_hardly_ever():
    catalogue, random = Catalogue(1), Random(1)
    seen = Counter(catalogue.changing(random, hot=True) for _ in range(20_000))
    counts = sorted((seen[product] for product in catalogue.products), reverse=True)
    assert sum(counts[: plan.PRODUCTS // 10]) > 0.5 * 20_000
    assert sum(counts[plan.PRODUCTS // 2 :]) < 0.1 * 20_000


def test_popularity_tells_nothing_about_changes():
    shares = []
    for seed in range(200):
        restless = Catalogue(seed).restless
        shares.append(sum(restless[: plan.HOT]) / sum(restless))
    assert sum(shares) / len(shares) == pytest.approx(plan.HOT / plan.PRODUCTS, abs=0.05)


def test_hot_products_stand_still_when_they_shall_and_all_others_change_alike():
    catalogue, random = Catalogue(1), Random(1)
    cold = catalogue.products[plan.HOT :]
    changed = Counter(catalogue.changing(random, hot=False) for _ in range(100 * len(cold)))
    assert set(changed) == set(cold)
    assert min(changed.values()) > 50


@pytest.mark.parametrize("budget", plan.BUDGETS)
def test_an_interval_costs_the_rows_that_it_is_chosen_for(budget):
    ttl = interval(budget)
    seconds, rows, expires = 300.0, 0, [0.0] * (plan.PRODUCTS + 1)
    for number, product in enumerate(islice(Catalogue(1).shoppers(), int(seconds * plan.READS_PER_S))):
        at = number / plan.READS_PER_S
        if at >= expires[product]:
            expires[product] = at + ttl
            rows += 1
    assert rows / seconds == pytest.approx(budget, rel=0.05)
