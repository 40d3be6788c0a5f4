"""The judge of the simulator against a slow, plain twin, and its figures on worlds of a few events."""

from __future__ import annotations

import numpy as np
import pytest
from freshness import worlds
from freshness.compiled import after, by_key
from freshness.truth import Refreshes, busiest, judge

SMALL = worlds.SETTINGS["A"].scaled(keys=60, reads=60.0, changes=6.0, seconds=60.0, warm=20.0)


def world_of(reads, changes, *, n=1, seconds=100.0, warm=0.0):
    times = np.array([at for at, _ in reads], float)
    ids = np.array([key for _, key in reads], np.int32)
    return worlds.World(
        name="tiny",
        seconds=seconds,
        warm=warm,
        mu=np.full(n, 1.0),
        lam=np.full(n, 1.0),
        times=times,
        ids=ids,
        reads=by_key(times, ids, n),
        changes=by_key(np.array([at for at, _ in changes], float), np.array([key for _, key in changes]), n),
        before=np.full(n, -1.0),
    )


def refreshes_of(events, n=1):
    return Refreshes(
        by_key(np.array([at for at, _ in events], float), np.array([key for _, key in events]), n)
    )


def slow_judge(world, events):
    """Read by read, from the definition."""
    stale = reads = 0
    age = 0.0
    changes = [
        (float(at), key)
        for key in range(world.keys)
        for at in world.changes.times[world.changes.start[key] : world.changes.start[key + 1]]
    ]
    for at, key in zip(world.times.tolist(), world.ids.tolist(), strict=True):
        if at < world.warm:
            continue
        reads += 1
        loaded = max([0.0] + [when for when, of in events if of == key and when < at])
        unseen = [when for when, of in changes if of == key and loaded < when < at]
        if unseen:
            stale += 1
            age += at - min(unseen)
    return stale / reads, age / reads


def test_judge_agrees_with_its_slow_twin_on_random_refreshes():
    for seed in range(5):
        world = worlds.make(SMALL, seed)
        rng = np.random.default_rng(seed)
        events = sorted(
            zip((rng.random(300) * world.seconds).tolist(), rng.integers(0, 60, 300).tolist(), strict=True)
        )
        verdict = judge(world, refreshes_of(events, 60))
        assert (verdict.stale, verdict.age) == pytest.approx(slow_judge(world, events))
        assert 0 < verdict.stale < 1


def test_a_value_is_stale_from_the_first_unseen_change_until_its_load():
    world = world_of([(1, 0), (3, 0), (6, 0), (8, 0), (9, 0)], [(2, 0), (5, 0), (7.5, 0)])
    verdict = judge(world, refreshes_of([(7, 0), (8.5, 0)]))
    assert verdict.stale == pytest.approx(3 / 5)  # at 3 and 6 since 2, at 8 since 7.5
    assert verdict.age == pytest.approx((1 + 4 + 0.5) / 5)


def test_a_read_does_not_see_the_load_that_it_causes_unless_it_waits():
    world = world_of([(3, 0)], [(2, 0)])
    assert judge(world, refreshes_of([(3, 0)])).stale == 1
    assert judge(world, refreshes_of([(np.nextafter(3, 0), 0)])).stale == 0


def test_what_happens_before_the_warm_up_is_not_judged():
    world = world_of([(3, 0), (30, 0)], [(2, 0)], warm=10.0)
    assert judge(world, refreshes_of([(20, 0)])).stale == 0


def test_the_percentile_counts_fresh_reads_as_of_age_zero():
    reads = [(1.0 + i, 0) for i in range(98)] + [(99.0, 0), (99.5, 0)]
    world = world_of(reads, [(98.5, 0)])
    assert judge(world, refreshes_of([])).age_p99 == pytest.approx(1.0)
    assert judge(world_of(reads, [(99.2, 0)]), refreshes_of([])).age_p99 == pytest.approx(0.3)


def test_busiest_counts_the_rows_of_the_fullest_window():
    rows = np.array([0.0, 0.9, 1.0, 1.2, 1.8, 9.0])
    assert busiest(rows, 1.0) == 4
    assert busiest(rows, 0.15) == 2
    assert busiest(np.empty(0), 1.0) == 0


def test_after_finds_what_a_plain_search_finds():
    rng = np.random.default_rng(3)
    times = np.sort(rng.integers(0, 50, 200).astype(float))
    for moment in range(-1, 51):
        for low in (0, 7, 199, 200):
            wanted = max(low, int(np.searchsorted(times, moment, side="right")))
            assert after(times, low, 200, float(moment)) == wanted
