"""The lesson of a load, against Bayes' rule integrated numerically."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite.integrals import integral, moments

from cacheupdater.price import index, posterior
from cacheupdater.price.posterior import SHAPE, SHAPE_MAX, SHAPE_MIN, SURPRISE

AT_LEISURE = settings(deadline=None)  # a busy machine is no failure
shapes = st.floats(SHAPE_MIN, SHAPE_MAX)
scales = st.floats(-6.0, 12.0).map(lambda power: 10.0**power)
ages = st.floats(-3.0, 9.0).map(lambda power: 10.0**power)


def array(*values):
    return np.array(values, np.float64)


def one(pair):
    a, b = pair
    return float(a[0]), float(b[0])


def changed(a, b, tau, prior=None):
    """Without a prior of its own there is no surprise."""
    prior = prior or (a, b)
    return one(posterior.changed(array(a), array(b), array(tau), prior=tuple(array(each) for each in prior)))


def exact(a, b, tau):
    """Mean and variance of Gamma(a, b) times the likelihood of at least one change."""
    return moments(
        lambda rate: (a - 1.0) * np.log(rate) - b * rate + np.log(-np.expm1(-rate * tau)), scale=1.0 / b
    )


def survival(a, b, s):
    return float((b / (b + s)) ** a)


@AT_LEISURE
@given(shapes, scales, ages)
def test_change_gives_the_mean_and_variance_of_the_exact_posterior(a, b, tau):
    mean, variance = exact(a, b, tau)
    new_a, new_b = changed(a, b, tau)

    if 1e-6 < new_b < 1e12:  # beyond, the table's bounds come first
        assert new_a / new_b == pytest.approx(mean, rel=1e-5)
    if SHAPE_MIN < new_a < SHAPE_MAX and 1e-6 < new_b < 1e12:
        assert new_a / new_b**2 == pytest.approx(variance, rel=1e-4)


@AT_LEISURE
@given(shapes, scales, ages, st.floats(0.0, 1e6))
def test_quiet_is_exactly_bayes_rule(a, b, tau, later):
    """P(quiet for tau and then for s) = P(quiet for tau) P(quiet for s, given that)."""
    new_a, new_b = one(posterior.unchanged(array(a), array(b), array(tau)))
    if new_b < 1e12:
        both, first = survival(a, b, tau + later), survival(a, b, tau)
        assert both == pytest.approx(first * survival(new_a, new_b, later), rel=1e-9, abs=1e-300)


@AT_LEISURE
@given(
    st.floats(0.3, 9.0),
    st.floats(-2.0, 6.0).map(lambda power: 10.0**power),
    st.integers(0, 20),
    st.floats(0.0, 1e6),
)
def test_counted_changes_are_exactly_bayes_rule(a, b, changes, exposure):
    mean, variance = moments(
        lambda rate: (a + changes - 1.0) * np.log(rate) - (b + exposure) * rate, scale=1.0 / (b + exposure)
    )
    new_a, new_b = one(posterior.counted(array(a), array(b), array(changes), array(exposure)))

    assert new_a / new_b == pytest.approx(mean, rel=1e-6)
    assert new_a / new_b**2 == pytest.approx(variance, rel=1e-5)


@AT_LEISURE
@given(shapes, scales, ages, st.floats(30.0, 1e6))
def test_surprising_change_moves_a_key_towards_what_the_prior_would_say(a, b, tau, life):
    a0, b0 = SHAPE, SHAPE * life
    own, fresh = changed(a, b, tau), changed(a0, b0, tau)
    p, p0 = (-np.expm1(-shape * np.log1p(tau / scale)) for shape, scale in ((a, b), (a0, b0)))
    new = changed(a, b, tau, (a0, b0))
    if all(SHAPE_MIN < pair[0] < SHAPE_MAX and 1e-6 < pair[1] < 1e12 for pair in (own, fresh, new)):
        r = SURPRISE * p0 / (SURPRISE * p0 + (1 - SURPRISE) * p)
        for before, target, after in zip(own, fresh, new, strict=True):
            assert after == pytest.approx(before ** (1 - r) * target**r, rel=1e-5)


def dated(a, b, changes, exposure, tau, prior):
    prior = tuple(array(each) for each in prior)
    told = (array(each) for each in (a, b, changes, exposure))
    return one(posterior.dated(*told, tau=array(tau), prior=prior))


@AT_LEISURE
@given(shapes, scales, ages, st.floats(30.0, 1e6))
def test_dated_quiet_is_counted_quiet_whatever_the_prior(a, b, tau, life):
    plain = one(posterior.counted(array(a), array(b), array(0.0), array(tau)))

    assert dated(a, b, 0.0, tau, tau, (SHAPE, SHAPE * life)) == plain


@AT_LEISURE
@given(shapes, scales, ages, st.integers(1, 9), st.floats(30.0, 1e6))
def test_dated_change_lies_between_what_the_past_and_what_the_prior_would_count(a, b, tau, changes, life):
    a0, b0 = SHAPE, SHAPE * life
    own, fresh = (
        one(posterior.counted(array(x), array(y), array(changes), array(tau))) for x, y in ((a, b), (a0, b0))
    )
    new = dated(a, b, changes, tau, tau, (a0, b0))
    for before, target, after in zip(own, fresh, new, strict=True):
        low, high = sorted((before, target))
        assert low * (1 - 1e-6) <= after <= high * (1 + 1e-6)


def test_change_after_long_quiet_is_believed_to_be_a_new_regime():
    """A key that was quiet for ten years and changes within a minute: at once it is a key like any other."""
    quiet = 10 * 365 * 86_400.0
    a, b = changed(1.0, quiet, 60.0, (SHAPE, SHAPE * 300.0))
    stubborn = changed(1.0, quiet, 60.0)

    assert a / b > 1000 * stubborn[0] / stubborn[1]


def test_expected_change_is_no_surprise():
    a, b = changed(20.0, 20.0 * 60.0, 60.0, (SHAPE, SHAPE * 86_400.0))

    assert a / b == pytest.approx(
        changed(20.0, 20.0 * 60.0, 60.0)[0] / changed(20.0, 20.0 * 60.0, 60.0)[1], rel=0.01
    )


@AT_LEISURE
@given(shapes, scales, st.just(0.0) | ages, st.floats(0.0, 1e30), st.booleans())
def test_whatever_a_load_says_a_posterior_stays_within_its_bounds(a, b, tau, count, told):
    a, b = float(np.float32(a)), float(np.float32(b))
    pairs = [
        changed(a, b, tau, (SHAPE, SHAPE * 30.0)),
        one(posterior.unchanged(array(a), array(b), array(tau))),
        one(posterior.counted(array(a), array(b), array(count), array(tau if told else -tau))),
        dated(a, b, count, tau, tau, (SHAPE, SHAPE * 30.0)),
    ]
    for new_a, new_b in pairs:
        assert 0.0199 <= new_a <= SHAPE_MAX * 1.0001
        assert 0.99e-6 <= new_b <= 1.0001e12


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.5])
def test_loads_at_any_interval_find_the_true_rate(rate):
    """Loaded after 1 to 100 s, told only whether something changed: after 200 loads within a factor of two."""
    rng = np.random.default_rng(7)
    estimates = []
    for _ in range(20):
        a, b = SHAPE, SHAPE * 300.0
        for tau in np.exp(rng.uniform(0.0, 4.6, 200)):
            if rng.random() < -np.expm1(-rate * tau):
                a, b = changed(a, b, tau, (SHAPE, SHAPE * 300.0))
            else:
                a, b = one(posterior.unchanged(array(a), array(b), array(tau)))
        estimates.append(a / b)

    assert rate / 2 < np.mean(estimates) < rate * 2


def test_first_load_that_tells_its_age_knows_a_static_key_at_once():
    """A change a month ago and none since: next to nothing to fear within a minute, where the prior fears one in ten."""
    month = 30 * 86_400.0
    a, b = posterior.counted(array(SHAPE), array(SHAPE * 300.0), array(1.0), array(month))
    chance, _ = index.worth(array(1.0), a, b, array(60.0), kappa=0.0)
    before, _ = index.worth(array(1.0), array(SHAPE), array(SHAPE * 300.0), array(60.0), kappa=0.0)

    assert float(before[0]) > 0.1
    assert float(chance[0]) < 1e-4


def test_integrals_of_these_tests_integrate():
    assert integral(lambda s: np.exp(-s), 700.0, scale=1.0) == pytest.approx(1.0, rel=1e-12)
    assert integral(lambda s: 1.0 / (1.0 + s), 1e9, scale=1.0) == pytest.approx(np.log1p(1e9), rel=1e-12)
    assert moments(lambda g: 1.5 * np.log(g) - 2.0 * g, scale=0.5) == pytest.approx((1.25, 0.625), rel=1e-9)
