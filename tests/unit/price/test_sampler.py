"""The measured share of stale reads: unbiased, with an interval that keeps its promise, inside its budget."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cacheupdater.price.sampler import SHARE, Sampler


def play(sampler, rng, *, seconds, budget, reads, stale, keys=500, step=0.1, start=0.0):
    """Reads of Zipf-popular keys in packs; a drawn key's load ends at once. Says how many reads were stale."""
    popularity = 1.0 / np.arange(1, keys + 1)
    popularity /= popularity.sum()
    total = wrong = 0
    for at in range(int(seconds / step)):
        now = start + at * step
        sampler.advance(budget, step)
        counts = rng.multinomial(rng.poisson(reads(now) * step), popularity)
        places = np.flatnonzero(counts)
        is_stale = rng.random(len(places)) < stale(now, places)
        total += counts.sum()
        wrong += counts[places][is_stale].sum()
        for place in sampler.draw(counts[places].astype(float)):
            key = b"%d" % places[place]
            sampler.begin(key)
            sampler.loaded(key, 0, now, stale=bool(is_stale[place]))
    return wrong / total


@pytest.mark.prove
def test_measured_share_is_the_true_one_when_hot_keys_are_fresher_and_the_traffic_changes():
    """The chance of a draw follows the traffic: a night of many stale reads must not weigh more than it has reads."""

    def reads(now):
        return 3_000 if now % 200 < 100 else 300

    def stale(now, places):
        return (0.02 if now % 200 < 100 else 0.6) * np.where(places < 10, 0.2, 1.0)

    true, measured = [], []
    for seed in range(8):
        sampler = Sampler(Random(seed).random)
        true.append(
            play(sampler, np.random.default_rng(seed), seconds=1000, budget=200, reads=reads, stale=stale)
        )
        measured.append(sampler.measured(0.0).share)

    error = (np.array(measured) - np.array(true)).mean()
    assert abs(error) < 0.012  # 8 runs of some 3,000 draws
    assert np.mean(true) > 0.04


def test_read_of_a_key_that_is_read_often_in_one_pack_counts_for_each_of_its_reads():
    """Budgets near the read rate draw nearly every read; a hot key, always fresh, must keep its weight."""
    shares = []
    for seed in range(10):
        sampler = Sampler(Random(seed).random)
        for at in range(300):
            sampler.advance(4_000.0, 1.0)
            places = sampler.draw(np.array([900.0, 100.0]))
            for place in places:
                sampler.begin(b"%d" % place)
            for place in set(places):
                sampler.loaded(b"%d" % place, 0, float(at), stale=place == 1)
        shares.append(sampler.measured(0.0).share)

    assert np.mean(shares) == pytest.approx(0.1, abs=0.01)


def test_draws_while_a_load_is_under_way_count_too():
    """A hot stale key waits a second for its load: all of its reads in between were stale."""
    sampler = Sampler(Random(3).random)
    for at in range(2_000):
        sampler.advance(1_000.0, 1.0)
        for _ in range(10):  # ten packs; the load ends after the last
            for place in sampler.draw(np.array([50.0, 50.0])):
                if place == 0:
                    sampler.known(0, float(at), stale=False)
                else:
                    sampler.begin(b"stale")
        sampler.loaded(b"stale", 0, float(at), stale=True)

    assert sampler.measured(0.0).share == pytest.approx(0.5, abs=0.03)


@pytest.mark.prove
@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
def test_interval_holds_the_truth_nine_times_in_ten(share):
    held = 0
    for seed in range(120):
        sampler = Sampler(Random(seed).random)
        play(
            sampler,
            np.random.default_rng(seed),
            seconds=60,
            budget=500,
            reads=lambda _: 1_000,
            stale=lambda _, places: share,
            keys=200,
            step=0.5,
        )
        measured = sampler.measured(0.0)
        held += measured.low <= share <= measured.high
    assert held >= 0.9 * 120


def test_draws_cost_one_or_two_hundredths_of_the_budget():
    sampler, drawn = Sampler(Random(5).random), 0
    for at in range(4_000):
        sampler.advance(200.0, 0.5)
        if at >= 100:
            drawn += len(sampler.draw(np.ones(2_500)))
        else:
            sampler.draw(np.ones(2_500))

    assert 0.01 <= drawn / (3_900 * 0.5) / 200.0 <= 0.02
    assert drawn / (3_900 * 0.5) / 200.0 == pytest.approx(SHARE, rel=0.1)


def test_where_reads_are_fewer_than_the_draws_that_could_be_paid_every_read_is_drawn():
    sampler = Sampler(Random(5).random)
    drawn = 0
    for _ in range(200):
        sampler.advance(10_000.0, 1.0)
        drawn += len(sampler.draw(np.ones(20)))

    assert drawn == pytest.approx(200 * 20, rel=0.03)


def test_nothing_is_drawn_before_there_is_any_rate():
    sampler = Sampler(Random(5).random)

    assert sampler.draw(np.ones(1_000)) == []
    assert sampler.measured(0.0) is None


def test_counts_that_are_a_mistake_cost_no_more_time_than_others():
    sampler = Sampler(Random(5).random)
    for _ in range(20):
        sampler.advance(200.0, 1.0)
        sampler.draw(np.ones(20))
    drawn = sampler.draw(np.full(1_000, 1e6))

    assert 100 < len(drawn) < 300
    assert np.mean(drawn) == pytest.approx(500, abs=80)


def test_memory_is_bounded_whatever_never_ends():
    sampler = Sampler(Random(5).random)
    for at in range(25_000):
        if at % 100 == 0:
            sampler.advance(1e6, 1.0)
            sampler.draw(np.ones(10))
        sampler.begin(b"%d" % at)
        sampler.known(0, float(at), stale=False)

    assert len(sampler._under_way) <= 1_000
    assert len(sampler._results) <= 20_000


def test_measured_looks_at_one_namespace_and_no_further_back_than_asked():
    sampler = Sampler(Random(5).random)
    for _ in range(10):
        sampler.advance(1e6, 1.0)
        sampler.draw(np.ones(10))
    for at in range(100):
        sampler.known(at % 2, float(at), stale=at % 2 == 1)

    assert sampler.measured(0.0).draws == 100
    assert sampler.measured(50.0).draws == 50
    assert sampler.measured(0.0, space=1).share == 1.0
    assert sampler.measured(0.0, space=0).share == 0.0
    assert sampler.measured(100.0) is None


def test_draw_whose_load_proves_nothing_is_forgotten_and_no_later_load_answers_for_it():
    sampler = Sampler(Random(5).random)
    for _ in range(10):
        sampler.advance(1e6, 1.0)
        sampler.draw(np.ones(10))
    sampler.begin(b"k")
    sampler.forget(b"k")
    sampler.loaded(b"k", 0, 0.0, stale=False)
    sampler.forget(b"nobody drew this one")

    assert not sampler.waits
    assert sampler.measured(0.0) is None


def test_load_of_a_key_that_nobody_drew_tells_nothing():
    sampler = Sampler(Random(5).random)
    sampler.loaded(b"k", 0, 0.0, stale=True)

    assert sampler.measured(0.0) is None
    assert not sampler.waits
