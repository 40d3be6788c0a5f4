"""Partitions whose part of a burst is below one row have beats of their own: never two at once, and each has its turn."""

from __future__ import annotations

from random import Random

import pytest

from cacheupdater.core.beats import OPEN_LEAST, Beats, Grid, Wall, grid, within
from cacheupdater.core.bucket import Bucket

WALL = 1_700_000_000.25


def most(turns: Grid, beats: int) -> tuple[int, float]:
    """The rows of so many beats, and the shortest window that holds them: from the end of the first to the last's begin."""
    return beats * turns.amount, max(0.0, (beats - 1) * turns.every * turns.length - turns.open)


@pytest.mark.parametrize("seed", range(50))
def test_no_window_over_all_partitions_holds_more_than_rate_times_time_plus_burst(seed):
    draw = Random(seed)
    rate, burst = draw.choice((0.1, 3.0, 10.0, 500.0)), draw.choice((1.0, 1.3, 2.0, 5.0, 47.0))
    base = grid(draw.choice((1.0, 10.0, 100.0)), draw.choice((1.0, 1.7, 30.0)))
    for turns in (grid(rate, burst), within(base, rate, burst)):
        for beats in range(1, 200):
            rows, window = most(turns, beats)
            assert rows <= rate * window + burst + 1e-6
        assert turns.rate <= rate + 1e-9


def test_a_beat_is_open_long_enough_for_a_statement_to_leave():
    for rate in (0.1, 1.0, 10.0, 100.0, 1000.0):
        for burst in (1.0, 2.0, rate):
            assert grid(rate, max(1.0, burst)).open >= OPEN_LEAST - 1e-9


def test_the_whole_budget_is_there_where_the_burst_is_two_beats():
    for rate in (2.0, 10.0, 47.0):
        assert grid(rate, rate).rate == pytest.approx(rate)


@pytest.mark.parametrize(("every", "of"), [(1, 48), (2, 48), (5, 48), (48, 48), (7, 12), (96, 36), (1000, 3)])
def test_every_partition_has_its_beat_as_often_as_the_others_and_no_two_at_once(every, of):
    turns = Grid(0.1, 0.1, 1, every)
    owners = [Beats(turns, {number: -1e12}, of=of, wall=Wall(WALL)) for number in range(of)]
    ends = []
    for each in owners:
        at, begins = 0.0, []
        for _ in range(2 * of):
            at = each.after(at)
            assert each.at(at + 0.05) is not None
            begins.append(at)
        ends.append(at)
        assert len(set(begins)) == len(begins)
    usual = 2 * of * of * every * 0.1
    assert max(ends) <= usual + (of + 2) * of * 0.1 + every * of * 0.1
    for tick in range(500):
        assert sum(each.at(tick * 0.37 + 0.01) is not None for each in owners) <= 1


def test_a_partition_is_served_from_the_next_turn_that_begins_with_its_new_owner():
    beats = Beats(Grid(1.0, 1.0, 1), {0: 0.5}, of=2, wall=Wall(0.0))
    assert beats.at(0.7) is None
    assert beats.at(2.0) == 2


def test_a_row_that_is_not_spent_in_its_beat_is_lost():
    bucket = Bucket(10.0, 10.0, now=0.0)
    bucket.follow(Beats(Grid(1.0, 1.0, 1), {0: 0.0}, of=3, wall=Wall(0.0)), 1 / 3, now=0.0)
    assert [bucket.rows(at) for at in (0.5, 1.0, 2.0, 30.0, 30.9, 31.0)] == [1, 0, 0, 1, 1, 0]
    assert bucket.when(1) == 33.0
    assert bucket.rows(33.1) == 1
    bucket.take(1)
    assert (bucket.rows(33.2), bucket.when(1), bucket.soon(33.2)) == (0, 36.0, 1.0)


def test_a_statement_that_comes_too_late_for_its_beat_must_not_leave_and_brings_no_row_back():
    bucket = Bucket(10.0, 10.0, now=0.0)
    bucket.follow(Beats(Grid(1.0, 1.0, 1), {0: 0.0}, of=3, wall=Wall(0.0)), 1 / 3, now=0.0)
    assert bucket.rows(0.5) == 1
    bucket.set_apart(1)
    assert bucket.covers(1, 0.5, 0.9)
    assert not bucket.covers(1, 0.5, 1.1)
    assert not bucket.covers(1, 0.5, 3.1)
    bucket.put_back(1, 0.5, 3.1)
    assert bucket.rows(3.1) == 1
    assert bucket.rows(4.0) == 0
