"""The breaker of a source: a second of nothing but trouble opens it, a probe closes it, and spending rises slowly then."""

from __future__ import annotations

from math import inf

import pytest

from cacheupdater.core.breaker import FIRST, OPEN_S, RAMP_S, SILENT_S, TROUBLES, Breaker

RATE = 500.0


def opened(at: float = 10.0) -> Breaker:
    """A breaker that opens at this time."""
    breaker = Breaker()
    breaker.answered(at - SILENT_S, 0.0)
    for n in range(TROUBLES):
        breaker.troubled(f"unit {n}", at)
    assert breaker.opens_at(at) == at + OPEN_S
    return breaker


def probed(breaker: Breaker, at: float, unit: str = "probe") -> None:
    assert breaker.opens_at(at) == at
    breaker.began(unit)


def test_closed_breaker_lets_everything_through():
    breaker = Breaker()
    assert breaker.opens_at(5.0) == 5.0
    assert breaker.may_spend(5.0, RATE, 1e6) == inf


def test_troubles_beside_answers_open_nothing():
    """Four namespaces whose statements time out, and a fifth that is answered every 200 ms."""
    breaker = Breaker()
    for n in range(500):
        at = n / 50
        if n % 10 == 0:
            breaker.answered(at, 0.0)
        else:
            breaker.troubled(f"slow {n}", at)
        assert breaker.opens_at(at) == at


def test_nothing_but_trouble_for_a_second_opens_it():
    breaker = Breaker()
    breaker.answered(10.0, 0.0)
    at = 10.0
    while breaker.opens_at(at) == at:
        at += 0.1
        breaker.troubled(f"unit {at}", at)

    assert SILENT_S - 0.01 <= at - 10.0 <= SILENT_S + 0.11
    assert breaker.opens_at(at) == at + OPEN_S


def test_source_that_was_idle_for_long_takes_three_troubles():
    breaker = Breaker()
    breaker.answered(10.0, 0.0)
    breaker.troubled("a", 1000.0)
    breaker.troubled("b", 1000.0)
    assert breaker.opens_at(1000.0) == 1000.0
    breaker.troubled("c", 1000.0)
    assert breaker.opens_at(1000.0) > 1000.0


def test_one_probe_at_a_time():
    breaker = opened(10.0)
    probed(breaker, 11.0)
    assert breaker.opens_at(11.0) == inf
    assert breaker.opens_at(100.0) == inf


def test_probe_in_trouble_opens_it_for_another_while():
    breaker = opened(10.0)
    probed(breaker, 11.0)
    breaker.troubled("probe", 12.0)
    assert breaker.opens_at(12.0) == 12.0 + OPEN_S


def test_probe_that_was_cut_off_gives_its_permit_back():
    breaker = opened(10.0)
    probed(breaker, 11.0)
    breaker.gone("probe")
    probed(breaker, 11.5, "another")


def test_troubles_of_units_from_before_do_not_put_the_probe_off():
    breaker = opened(10.0)
    breaker.troubled("old", 10.9)
    assert breaker.opens_at(11.0) == 11.0
    probed(breaker, 11.0)
    breaker.troubled("older", 11.1)
    breaker.answered(11.2, 0.0)
    assert breaker.opens_at(11.2) == 11.2


def test_late_answer_of_a_unit_from_before_closes_it():
    breaker = opened(10.0)
    breaker.answered(10.5, 0.0)
    assert breaker.opens_at(10.5) == 10.5


def test_after_the_closing_spending_rises_to_the_whole_budget():
    breaker = opened(10.0)
    probed(breaker, 11.0)
    breaker.answered(11.0, spent=7000.0)

    assert breaker.may_spend(11.0, RATE, 7000.0) == FIRST
    half = breaker.may_spend(11.0 + RAMP_S / 2, RATE, 7000.0)
    assert half == pytest.approx(FIRST + RATE * RAMP_S / 8)
    assert breaker.may_spend(11.0 + RAMP_S / 2, RATE, 7000.0 + half) == 0.0
    assert breaker.may_spend(11.0 + RAMP_S, RATE, 1e9) == inf


def test_trouble_during_the_ramp_opens_it_again_after_a_second_without_answers():
    breaker = opened(10.0)
    probed(breaker, 11.0)
    breaker.answered(11.0, 0.0)
    for at in (11.5, 11.8, 12.0):
        breaker.troubled(f"unit {at}", at)
    assert breaker.opens_at(12.0) == 12.0 + OPEN_S
