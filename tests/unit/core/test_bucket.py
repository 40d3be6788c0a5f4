"""Q1: in any window of t seconds at most rate * t + burst rows, and nothing at first."""

from __future__ import annotations

from random import Random

import pytest

from cacheupdater.core.bucket import Bucket


def test_bucket_begins_empty_so_that_a_restart_loop_cannot_spend_bursts():
    bucket = Bucket(100.0, 50.0, now=10.0)

    assert bucket.rows(10.0) == 0
    assert bucket.rows(10.1) == 10


def test_bucket_never_holds_more_than_its_burst():
    bucket = Bucket(100.0, 50.0, now=0.0)

    assert bucket.rows(1_000.0) == 50


def test_bucket_smaller_than_a_row_can_still_pay_one():
    bucket = Bucket(1.0, 0.0, now=0.0)

    assert bucket.rows(5.0) == 1


def test_clock_that_steps_back_adds_nothing_and_takes_nothing():
    bucket = Bucket(10.0, 10.0, now=100.0)
    assert bucket.rows(100.5) == 5
    assert bucket.rows(50.0) == 5
    assert bucket.rows(100.5) == 5


def test_bucket_says_when_rows_can_be_paid():
    bucket = Bucket(10.0, 10.0, now=100.0)

    assert bucket.when(4) == pytest.approx(100.4)
    assert bucket.rows(100.4) == 4
    assert bucket.when(4) == pytest.approx(100.4)
    bucket.take(4)
    assert bucket.when(1) == pytest.approx(100.5)


def test_more_than_the_burst_is_never_promised():
    assert Bucket(10.0, 5.0, now=0.0).when(1_000) == pytest.approx(0.5)


def test_share_is_at_least_a_row_and_at_most_the_burst():
    assert Bucket(1.0, 100.0, now=0.0).share(0.1) == 1
    assert Bucket(500.0, 100.0, now=0.0).share(0.1) == 50
    assert Bucket(5_000.0, 100.0, now=0.0).share(0.1) == 100


def test_no_window_ever_sees_more_than_rate_times_time_plus_burst():
    for seed in range(200):
        rng = Random(seed)
        rate, burst = rng.uniform(0.5, 300.0), rng.uniform(1.0, 100.0)
        start = now = rng.choice((0.0, 1e6))
        bucket = Bucket(rate, burst, now=now)
        spent = []
        for _ in range(40):
            now += rng.choice((0.0, 0.001, 0.1, 1.0))
            rows = rng.randint(0, bucket.rows(now))
            bucket.take(rows)
            spent.append((now, rows))
        for first in range(40):
            for last in range(first, 40):
                rows = sum(rows for _, rows in spent[first : last + 1])
                assert rows <= rate * (spent[last][0] - spent[first][0]) + burst + 1e-6
        assert sum(rows for _, rows in spent) <= rate * (now - start) + 1e-6


def test_after_its_end_a_bucket_is_empty_whenever_somebody_looks():
    """Also if nobody looked in between: its process slept past the end."""
    bucket = Bucket(10.0, 10.0, now=0.0)
    bucket.until = 5.0

    assert bucket.rows(4.9) == 10
    assert bucket.rows(5.0) == 0
    assert bucket.when(1) == float("inf")
    bucket.until = 100.0
    assert bucket.rows(5.0) == 0
    assert bucket.rows(6.0) == 10
    asleep = Bucket(10.0, 10.0, now=0.0)
    asleep.until = 5.0
    assert asleep.rows(1_000.0) == 0
    asleep.until = 2_000.0
    assert asleep.rows(1_000.0) == 0


def test_a_bucket_promises_nothing_beyond_its_end():
    bucket = Bucket(10.0, 10.0, now=0.0)
    bucket.until = 0.5

    assert bucket.when(4) == pytest.approx(0.4)
    assert bucket.when(6) == float("inf")
