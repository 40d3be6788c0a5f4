"""Tokens that clients name, as times of our own clock: believed only if somebody can have taken them."""

from __future__ import annotations

from math import inf

import pytest

from cacheupdater.core.redis_clock import KNOWN_S, SKEW_S, TRIP_MAX_S, RedisClock

REDIS_NOW = 1_795_283_557.0  # while our own clock says 100


def token(after=0.0):
    return round((REDIS_NOW + after) * 1e6) * 1000


@pytest.fixture
def clock():
    clock = RedisClock()
    clock.told(token(), 99.9, 100.1)
    return clock


def test_a_token_is_as_old_as_redis_says(clock):
    assert clock.taken(token(-2.5), 101.0) == pytest.approx(97.5, abs=1e-5)


@pytest.mark.parametrize("ahead", [0.0, SKEW_S / 2])
def test_a_token_of_a_clock_a_little_ahead_was_taken_now(clock, ahead):
    assert clock.taken(token(1.0 + ahead), 101.0) == pytest.approx(101.0, abs=1e-5)


@pytest.mark.parametrize("far", [token(1.0 + 2 * SKEW_S), 2**64 - 1])
def test_a_token_that_is_still_to_come_was_never_taken(clock, far):
    assert clock.taken(far, 101.0) == -inf


def test_the_least_token_is_very_old(clock):
    assert clock.taken(0, 101.0) < -1e9


def test_without_an_answer_of_redis_nothing_is_believed():
    assert RedisClock().taken(token(), 100.0) == -inf


def test_an_answer_does_not_count_for_ever(clock):
    assert clock.taken(token(), 100.0 + KNOWN_S) > -inf
    assert clock.taken(token(), 101.0 + KNOWN_S) == -inf


def test_a_slow_answer_says_nothing(clock):
    clock.told(token(50.0), 100.0, 100.1 + TRIP_MAX_S)
    assert clock.taken(token(), 101.0) == pytest.approx(100.0, abs=1e-5)


def test_a_clock_that_was_set_is_followed(clock):
    clock.told(token(3600.0), 102.0, 102.0)
    assert clock.taken(token(3600.0), 103.0) == pytest.approx(102.0, abs=1e-5)
    assert clock.taken(token(3.0), 103.0) < 0.0
