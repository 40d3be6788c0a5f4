"""The closed forms of `index` against numerical integrals of their definitions, and their shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite.integrals import integral

from cacheupdater.price import index
from cacheupdater.price.posterior import SHAPE_MAX, SHAPE_MIN

AT_LEISURE = settings(deadline=None)  # a busy machine is no failure
FEW = settings(AT_LEISURE, max_examples=50)
shapes = st.floats(SHAPE_MIN, SHAPE_MAX, width=64) | st.sampled_from([0.35, 1.0, 2.0, 1.0 + 1e-7, 2.0 - 1e-5])
scales = st.floats(-6.0, 12.0).map(lambda power: 10.0**power)
ages = st.just(0.0) | st.floats(-3.0, 9.0).map(lambda power: 10.0**power)
reads = st.just(0.0) | st.floats(-9.0, 6.0).map(lambda power: 10.0**power)
rates = st.floats(-9.0, 3.0).map(lambda power: 10.0**power)


def array(*values):
    return np.array(values, np.float64)


def gamma(mu, a, b, tau, kappa=0.0):
    p, value = index.worth(array(mu), array(a), array(b), array(tau), kappa=kappa)
    return float(p[0]), float(value[0])


# --- against the definition ------------------------------------------------------------------------------
# A load now prevents INT_0^tau s dp(s) stale reads per read rate, by parts INT S - tau S(tau); of seconds of
# staleness it prevents INT_0^tau s p(s) ds. For the Gamma, s = b (e**u - 1) makes both integrands gentle.


def stale_reads(a, b, tau):
    return integral(
        lambda u: b * np.expm1(u) * a * np.exp(-a * u), np.log1p(tau / b), scale=min(1.0, 1.0 / a)
    )


def stale_seconds(a, b, tau):
    return integral(
        lambda u: b * np.expm1(u) * -np.expm1(-a * u) * b * np.exp(u),
        np.log1p(tau / b),
        scale=min(1.0, 1.0 / a),
    )


@AT_LEISURE
@given(shapes, scales, ages)
def test_worth_is_the_stale_reads_that_a_load_prevents(a, b, tau):
    assert gamma(1.0, a, b, tau)[1] == pytest.approx(stale_reads(a, b, tau), rel=2e-3, abs=1e-300)


@AT_LEISURE
@given(shapes, scales, ages)
def test_worth_of_age_is_the_seconds_of_staleness_that_a_load_prevents(a, b, tau):
    kappa = 1e12  # so that only they count
    value = gamma(1.0, a, b, tau, kappa)[1] - gamma(1.0, a, b, tau)[1]
    assert value / kappa == pytest.approx(
        stale_seconds(a, b, tau), rel=2e-3, abs=1e-9 * stale_reads(a, b, tau)
    )


@AT_LEISURE
@given(shapes, scales, ages)
def test_chance_to_be_stale_is_the_mean_over_all_rates_that_the_posterior_allows(a, b, tau):
    """1 - E e**(-rate tau); as an integral of its density, so that it is not the formula again."""
    density = integral(lambda u: a * np.exp(-a * u), np.log1p(tau / b), scale=min(1.0, 1.0 / a))
    assert gamma(1.0, a, b, tau)[0] == pytest.approx(density, rel=1e-9, abs=1e-12)


@AT_LEISURE
@given(rates, ages)
def test_index_of_a_known_rate_is_the_stale_reads_that_a_load_prevents(rate, tau):
    x = rate * tau
    exact = integral(lambda v: v * np.exp(-v), min(x, 700.0), scale=1.0) / rate
    assert float(index.poisson(array(1.0), array(rate), array(tau))[0]) == pytest.approx(
        exact, rel=1e-6, abs=1e-15 / rate
    )


@AT_LEISURE
@given(rates, ages)
def test_index_of_age_of_a_known_rate_is_the_seconds_that_a_load_prevents(rate, tau):
    exact = integral(lambda v: v * -np.expm1(-v), rate * tau, scale=1.0) / rate**2
    assert float(index.poisson_age(array(1.0), array(rate), array(tau))[0]) == pytest.approx(
        exact, rel=1e-6, abs=1e-14 / rate**2
    )


@AT_LEISURE
@given(rates, st.floats(1e-3, 1e6))
def test_value_known_to_be_stale_is_worth_the_reads_of_a_fresh_copys_life(rate, mu):
    """INT mu S: and the index of a value that has certainly changed."""
    a = 7.0
    life = integral(lambda s: mu * np.exp(-rate * s), 700.0 / rate, scale=1.0 / rate)
    assert float(index.worth_of_known(array(mu), array(a), array(a / rate))[0]) == pytest.approx(
        life, rel=1e-6
    )


def test_certain_gamma_is_a_known_rate():
    rate, a = 0.02, 1e7
    for tau in (0.5, 10.0, 300.0):
        known = float(index.poisson(array(3.0), array(rate), array(tau))[0])
        aged = float(index.poisson_age(array(3.0), array(rate), array(tau))[0])
        assert gamma(3.0, a, a / rate, tau)[1] == pytest.approx(known, rel=1e-4)
        assert gamma(3.0, a, a / rate, tau, 0.1)[1] == pytest.approx(known + 0.1 * aged, rel=1e-3)


# --- shape -----------------------------------------------------------------------------------------------


@AT_LEISURE
@given(shapes, scales, ages, reads, st.sampled_from([0.0, 1e-6, 1 / 30, 1.0]))
def test_worth_is_finite_and_not_negative_wherever_a_table_may_be(a, b, tau, mu, kappa):
    a, b, mu = (float(np.float32(each)) for each in (a, b, mu))
    p, value = gamma(mu, a, b, tau, kappa)

    assert 0.0 <= p <= 1.0
    assert value >= 0.0
    assert np.isfinite(value)
    assert np.isfinite(index.worth_of_known(array(mu), array(a), array(b))).all()


@FEW
@given(shapes, scales, st.sampled_from([0.0, 1 / 30]))
def test_worth_never_falls_while_a_value_gets_older(a, b, kappa):
    tau = np.geomspace(1e-3, 1e9, 5_000)
    ones = np.ones(len(tau))
    p, value = index.worth(ones, a * ones, b * ones, tau, kappa=kappa)

    assert (np.diff(p) >= -1e-12).all()
    assert (np.diff(value) >= -2e-3 * value[1:]).all()


@AT_LEISURE
@given(shapes, scales, ages, reads)
def test_worth_grows_in_proportion_to_the_reads(a, b, tau, mu):
    assert gamma(2.0 * mu, a, b, tau, 0.01)[1] == pytest.approx(2.0 * gamma(mu, a, b, tau, 0.01)[1])


def test_nobody_who_may_be_static_is_forgotten_for_ever():
    """With a <= 1 the index has no ceiling: however dear a row is, in the end each key is worth one."""
    assert gamma(1e-6, 0.35, 1e6, 1e15)[1] > 1.0
    assert gamma(1e-6, 5.0, 1.0, 1e15)[1] < 1.0


def test_reader_of_a_key_that_changes_faster_than_it_is_read_gains_nothing_from_a_load():
    assert gamma(1.0, 30.0, 0.3, 1e6)[1] < 0.02
