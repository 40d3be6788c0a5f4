"""Worlds have the rates, pairings and shifts of their settings, and the same seed makes the same world."""

from __future__ import annotations

import lzma

import numpy as np
import pytest
from freshness import semireal, worlds

SMALL = {"keys": 500, "reads": 500.0, "changes": 20.0, "seconds": 400.0, "warm": 100.0}


@pytest.mark.parametrize("name", list(worlds.SETTINGS))
def test_a_world_has_the_reads_and_changes_of_its_setting(name):
    world = worlds.make(worlds.SETTINGS[name].scaled(**SMALL), 1)
    assert len(world.times) == pytest.approx(500 * 400, rel=0.02)
    assert len(world.changes.times) == pytest.approx(20 * 400, rel=0.15)
    assert (np.diff(world.times) >= 0).all()
    assert world.reads.start[-1] == len(world.times)
    assert world.changes.times.max() < world.seconds
    assert (world.before <= 0).all()
    for key in range(0, 500, 50):
        own = world.reads.times[world.reads.start[key] : world.reads.start[key + 1]]
        assert own == pytest.approx(world.times[world.ids == key])


def test_the_same_seed_makes_the_same_world_and_another_does_not():
    one, again, other = (worlds.make(worlds.SETTINGS["A"].scaled(**SMALL), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.times, again.times)
    assert np.array_equal(one.lam, again.lam)
    assert len(one.times) != len(other.times) or not np.array_equal(one.times, other.times)


def test_tuning_and_test_seeds_have_nothing_in_common():
    assert not set(worlds.TUNING_SEEDS) & set(worlds.TEST_SEEDS)


@pytest.mark.parametrize(("name", "sign"), [("A", 0), ("B", 1), ("C", -1)])
def test_reads_and_changes_are_paired_as_the_setting_says(name, sign):
    world = worlds.make(worlds.SETTINGS[name].scaled(**SMALL), 1)
    found = np.corrcoef(np.log(world.mu), np.log(world.lam))[0, 1]
    assert found == pytest.approx(0.7 * sign, abs=0.1)


def test_static_keys_never_change():
    world = worlds.make(worlds.SETTINGS["E"].scaled(**SMALL), 1)
    static = world.lam == 0
    assert static.mean() == pytest.approx(0.8, abs=0.06)
    assert not np.diff(world.changes.start)[static].any()


def test_a_shift_changes_who_changes():
    world = worlds.make(worlds.SETTINGS["shift"].scaled(**SMALL), 1)
    middle = 0.45 * world.seconds
    key = np.repeat(np.arange(world.keys), np.diff(world.changes.start))
    early = np.bincount(key[world.changes.times < middle], minlength=world.keys) > 0
    late = np.bincount(key[world.changes.times >= middle], minlength=world.keys) > 0
    assert (late & ~early).sum() > 30
    assert (early & ~late).sum() > 30


@pytest.fixture
def traces(tmp_path):
    """A folder with traces of the real ones' shape: 40 files; 60 keys, the first forty read most."""
    rng = np.random.default_rng(5)
    lines = [f"{1_600_000_000 + i * 1000},file-{rng.integers(40):02d}" for i in range(900)]
    lines += [f"1600000000,file-{i:02d}" for i in range(40)]
    with lzma.open(tmp_path / semireal.CHANGES, "wt") as file:
        file.write("\n".join(["unix_ts,key", *lines]) + "\n")
    keys = np.concatenate([rng.integers(1_000, 1_040, 20_000), rng.integers(1_040, 1_060, 500)])
    with lzma.open(tmp_path / semireal.READS, "w") as file:
        file.write(rng.permutation(keys).astype(">i4").tobytes())
    return tmp_path


@pytest.mark.parametrize("name", semireal.ROWS)
def test_a_half_real_world_has_every_change_and_the_reads_of_the_most_read_keys(traces, name):
    assert semireal.present(traces)
    world = semireal.make(name, 1, traces)
    assert world.keys == 40
    assert len(world.changes.times) == 940
    assert world.changes.times.max() == semireal.SECONDS
    assert (np.diff(world.times) >= 0).all()
    if name.startswith("orm"):
        assert len(world.times) == 20_000


def test_correlated_pairing_lets_what_is_read_more_change_more(traces):
    lam = semireal.make("popular x correlated", 1, traces).lam
    plain = semireal.make("popular x random", 1, traces).lam
    rank = np.arange(40)
    assert np.corrcoef(rank, lam)[0, 1] < np.corrcoef(rank, plain)[0, 1] - 0.2


def test_without_traces_there_are_no_half_real_worlds(tmp_path):
    assert not semireal.present(tmp_path)
