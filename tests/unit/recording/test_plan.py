"""A plan from a recording, beside the plan of an oracle that knows every rate."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from msgspec import structs

from cacheupdater.errors import Misconfigured
from cacheupdater.price.outlook import Keys, outlook
from cacheupdater.recording.plan import plan
from cacheupdater.recording.recording import Recording, Space, Watched

SECONDS, INTERVAL = 60.0, 40.0


class World:
    """Keys with known rates, and what a minute's recording of them would hold."""

    def __init__(self, seed, *, number=5_000, sampled=600, dated=False, shape=0.35):
        random = np.random.default_rng(seed)
        mu = 100.0 / np.arange(1, number + 1) ** 0.8
        rate = random.gamma(shape, 0.05 / shape, number) + 1e-9
        self.truth = Keys(mu, rate, *(np.full(number, each) for each in (0.0, 1.0, 1.0, np.inf, 1.0)))
        reads = random.poisson(mu * SECONDS)
        chosen = random.choice(
            number, sampled, replace=False, p=reads / reads.sum() / 2 + (reads > 0) / (reads > 0).sum() / 2
        )
        if dated:
            sample = [
                Watched(int(reads[at]), 1.0, float(random.exponential(1 / rate[at])), True) for at in chosen
            ]
        else:
            moved = random.random(sampled) < -np.expm1(-rate[chosen] * INTERVAL)
            sample = [
                Watched(int(reads[at]), float(m), INTERVAL, False)
                for at, m in zip(chosen, moved, strict=True)
            ]
        keys = dict(Counter(int(each) for each in reads if each))
        self.recording = Recording(SECONDS, [Space("p", "main", 1.0, None, keys, 0, 0.5, sample)], 0)

    def planned(self, budgets, **options):
        options = {"timed": False, "random": np.random.default_rng(1)} | options
        return plan(self.recording, "main", budgets, **options)


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_plan_is_near_what_full_knowledge_would_give(seed, dated):
    world = World(seed, dated=dated)
    budgets = (20.0, 100.0, 400.0)
    for found, budget in zip(world.planned(budgets), budgets, strict=True):
        true = outlook(world.truth, budget)
        assert found.mean.stale == pytest.approx(true.stale, rel=0.3)
        assert found.mean.price == pytest.approx(true.price, rel=0.6)
        assert found.mean.starved_reads == pytest.approx(true.starved_reads, abs=0.1)


# A thousand worlds with bits for changes, and as many with dates: how often the limits of a world held the truth and how wide
# they were, as means of its three budgets; and by how much worlds differ in both (the standard deviations).
MEASURED = 1_000
HELD, HELD_BY = 0.9, {False: 0.20, True: 0.25}
WIDE, WIDE_BY = {False: 0.334, True: 0.198}, {False: 0.083, True: 0.040}


@pytest.mark.prove
@pytest.mark.parametrize("dated", [False, True])
def test_limits_hold_the_truth_nine_times_in_ten_and_are_no_wider_than_that_takes(dated, amount):
    """Within three standard errors: 0.84 to 0.96 of the truths for 160 worlds."""
    budgets, held, widths, worlds = (20.0, 100.0, 400.0), [], [], amount(160, 160)
    for seed in range(worlds):
        world = World(seed, dated=dated)
        for found, budget in zip(world.planned(budgets), budgets, strict=True):
            true = outlook(world.truth, budget).stale
            held.append(found.low <= true <= found.high)
            widths.append((found.high - found.low) / true)
    errors = 3 * np.sqrt(1 / worlds + 1 / MEASURED)
    assert np.mean(held) == pytest.approx(HELD, abs=errors * HELD_BY[dated])
    assert np.mean(widths) == pytest.approx(WIDE[dated], abs=errors * WIDE_BY[dated])


def test_a_larger_sample_knows_better():
    small, large = (World(4, sampled=sampled).planned([100.0])[0] for sampled in (40, 2_000))
    assert large.high - large.low < small.high - small.low


def test_popular_keys_that_change_often_are_not_taken_for_quiet_ones():
    """The same rates, but for the popular keys in one world and for the others in the other."""

    def planned(rate_of_popular, rate_of_others):
        sample = [
            Watched(reads, 1.0, 1.0 / rate, True)
            for reads, rate in [(1000, rate_of_popular)] * 200 + [(1, rate_of_others)] * 200
        ]
        space = Space("p", "main", 1.0, None, {1000: 100, 1: 10_000}, 0, None, sample)
        return plan(
            Recording(SECONDS, [space], 0), "main", [50.0], timed=False, random=np.random.default_rng(1)
        )[0].mean

    assert planned(0.001, 1.0).starved > 0.9  # the ten thousand others change too often
    assert planned(1.0, 0.001).starved < 0.2


def test_the_same_file_gives_the_same_answer():
    world = World(5, number=500, sampled=100)
    assert world.planned([10.0, 20.0]) == world.planned([10.0, 20.0])


def test_database_time_buys_what_rows_of_that_price_cost():
    world = World(6, number=500, sampled=100)
    [by_time], [by_rows] = world.planned([50.0], timed=True), world.planned([100.0])
    assert by_time.mean.stale == pytest.approx(by_rows.mean.stale)


@pytest.mark.parametrize("timed", [False, True])
def test_rows_that_would_prevent_less_than_the_sources_least_gain_are_not_planned(timed):
    world = World(8, number=500, sampled=200)
    [all_of_it] = world.planned([400.0], timed=timed)
    [space] = world.recording.spaces
    some = [structs.replace(space, least_gain=0.5)]
    world.recording = Recording(SECONDS, some, 0)
    [found] = world.planned([400.0], timed=timed)

    assert found.mean.budget == 400.0
    assert found.mean.spent < 0.8 * all_of_it.mean.spent
    assert found.mean.stale > all_of_it.mean.stale
    assert found.mean.price == pytest.approx(1.0 if timed else 0.5, rel=0.01)  # half a millisecond a row


def test_a_namespace_with_a_tiny_sample_borrows_from_its_source():
    world = World(7, number=500, sampled=200)
    other = Space("q", "main", 1.0, None, {10: 100}, 0, None, [])
    both = Recording(SECONDS, [*world.recording.spaces, other], 0)
    [alone], [joined] = (
        plan(each, "main", [50.0], timed=False, random=np.random.default_rng(1))
        for each in (world.recording, both)
    )
    assert joined.mean.stale > alone.mean.stale


def test_nothing_sampled_is_said():
    empty = Recording(SECONDS, [Space("p", "main", 1.0, None, {1: 5}, 0, None, [])], 0)
    with pytest.raises(Misconfigured, match="no sample of source main"):
        plan(empty, "main", [10.0], timed=False, random=np.random.default_rng(1))


def test_odd_samples_give_numbers_all_the_same():
    odd = [
        Watched(1, 0.0, 0.0, False),
        Watched(2**40, 1.0, 0.0, True),
        Watched(1, 1e9, 1e-9, True),
        Watched(3, 1.0, 0.0, False),
    ]
    space = Space("p", "main", 1.0, 1e-3, {1: 2**40, 2**50: 1}, 0, 1e-9, odd * 5)
    for timed in (False, True):
        [found] = plan(
            Recording(1.0, [space], 0), "main", [10.0], timed=timed, random=np.random.default_rng(1)
        )
        assert all(np.isfinite(found.mean))
        assert 0.0 <= found.low <= found.high <= 1.0
