"""Baselines and bounds of the freshness simulator against closed forms and the book's example."""

from __future__ import annotations

import numpy as np
import pytest
from freshness import baselines, bounds, worlds
from freshness.truth import judge

WORLD = worlds.SETTINGS["A"].scaled(keys=300, reads=600.0, changes=6.0, seconds=600.0, warm=200.0)


@pytest.fixture(scope="module")
def world():
    return worlds.make(WORLD, 1)


def test_the_optimum_is_that_of_the_book():
    """Cho and Garcia-Molina: change rates 1 to 5 a day, five refreshes a day."""
    rates = bounds.optimal_rates(np.ones(5), np.arange(1.0, 6.0), 5.0)
    assert rates == pytest.approx([1.15, 1.36, 1.35, 1.14, 0.0], abs=0.005)


def test_the_optimum_has_one_marginal_value_for_all_that_are_refreshed(world):
    rates = bounds.optimal_rates(world.mu, world.lam, 12.0)
    assert rates.sum() == pytest.approx(12.0)
    some = rates > 0
    x = world.lam[some] / rates[some]
    marginal = world.mu[some] / world.lam[some] * (1 - (1 + x) * np.exp(-x))
    assert marginal == pytest.approx(np.full(some.sum(), marginal.mean()), rel=1e-4)
    assert (world.mu[~some] / world.lam[~some] <= marginal.mean() * 1.0001).all()


def test_no_other_split_of_the_budget_beats_the_optimum(world):
    rates = bounds.optimal_rates(world.mu, world.lam, 12.0)
    best = bounds.optimal_stale(world.mu, world.lam, rates)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = rates * np.exp(0.3 * rng.standard_normal(len(rates)))
        assert best <= bounds.optimal_stale(world.mu, world.lam, other * 12.0 / other.sum())
    assert best < bounds.optimal_stale(world.mu, world.lam, baselines.sqrt_rates(world, 12.0))


def test_a_schedule_is_as_fresh_as_its_closed_form(world):
    for budget in (6.0, 30.0):
        rates = bounds.optimal_rates(world.mu, world.lam, budget)
        verdict = judge(world, baselines.scheduled(world, rates))
        assert verdict.rows == pytest.approx(budget, rel=0.02)
        assert verdict.stale == pytest.approx(bounds.optimal_stale(world.mu, world.lam, rates), rel=0.12)


def test_freshness_at_fixed_intervals_is_the_closed_form():
    one = worlds.SETTINGS["D"].scaled(
        zipf=0.0, keys=100, reads=2_000.0, changes=50.0, seconds=400.0, warm=20.0
    )
    world = worlds.make(one, 2)
    for interval in (0.5, 2.0, 8.0):
        x = 0.5 * interval
        verdict = judge(world, baselines.scheduled(world, np.full(100, 1 / interval)))
        assert verdict.stale == pytest.approx(1 - (1 - np.exp(-x)) / x, rel=0.03)
        age = interval * (0.5 - 1 / x + (1 - np.exp(-x)) / x**2)
        assert verdict.age == pytest.approx(age, rel=0.04)


def test_min_interval_of_one_much_read_key_set_is_the_closed_form():
    """Every key is read often, so that it is loaded every T and a read's wait for the next one is short."""
    one = worlds.SETTINGS["D"].scaled(
        zipf=0.0, keys=50, reads=5_000.0, changes=25.0, seconds=300.0, warm=20.0
    )
    world = worlds.make(one, 3)
    verdict = judge(world, baselines.on_access(world, baselines.least_interval(3.0)))
    x = 0.5 * 3.01
    assert verdict.stale == pytest.approx(1 - (1 - np.exp(-x)) / x, rel=0.03)
    assert verdict.blocked == 0


@pytest.mark.parametrize("name", list(baselines.ON_ACCESS))
def test_an_interval_is_found_that_costs_just_the_budget(world, name):
    rule = baselines.tuned(world, baselines.ON_ACCESS[name], 12.0)
    verdict = judge(world, baselines.on_access(world, rule))
    assert verdict.rows == pytest.approx(12.0, rel=0.005)
    assert (verdict.blocked > 0) == (name != "min-interval")


def test_who_waits_for_a_load_sees_a_fresh_value(world):
    rule = baselines.tuned(world, baselines.least_interval, 12.0)
    nobody = judge(world, baselines.on_access(world, rule))
    waits = judge(world, baselines.on_access(world, baselines.ttl(rule.soft)))
    assert waits.rows == pytest.approx(nobody.rows, rel=0.01)
    assert waits.stale < nobody.stale


def test_the_capped_article_keeps_its_cap_and_pays_for_it(world):
    burst = 5.0
    kept = baselines.capped(world, 12.0, burst, interval=0.1)
    verdict = judge(world, kept)
    for span, most in zip((1, 10, 60), verdict.most, strict=True):
        assert most <= 12.0 * span + burst
    assert verdict.rows == pytest.approx(12.0, rel=0.01)
    best = judge(world, baselines.best_capped(world, 12.0, burst))
    assert best.stale <= verdict.stale


def test_rows_for_the_same_freshness_are_found(world):
    rule = baselines.tuned(world, baselines.least_interval, 12.0)
    stale = judge(world, baselines.on_access(world, rule)).stale
    assert baselines.equally_fresh(world, stale) == pytest.approx(
        12.0, rel=0.15
    )  # in so small a world a longer interval may do as well


def test_bounds_are_in_order(world):
    for budget in (3.0, 12.0, 48.0):
        best = bounds.optimal_stale(world.mu, world.lam, bounds.optimal_rates(world.mu, world.lam, budget))
        waiting = bounds.blocking_stale(world.mu, world.lam, budget)
        assert bounds.clairvoyant_stale(world, budget) <= waiting <= best


def test_the_clairvoyant_needs_no_more_rows_than_there_are_changes(world):
    assert bounds.clairvoyant_stale(world, 7.0) == 0
    everything = bounds.clairvoyant_stale(world, 0.0)
    assert everything > bounds.clairvoyant_stale(world, 1.0) > 0


def test_the_blocking_optimum_of_equal_keys_is_their_best_ttl():
    mu, lam, budget = np.full(10, 2.0), np.full(10, 0.5), 5.0
    tau = 10 / budget - 1 / 2.0  # a cycle is the ttl and the wait for the next read
    missed = 2.0 * (tau - (1 - np.exp(-0.5 * tau)) / 0.5) / (tau + 0.5) / 2.0
    assert bounds.blocking_stale(mu, lam, budget) == pytest.approx(missed, rel=1e-4)
