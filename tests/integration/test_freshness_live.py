"""The price policy on real servers: `make freshness-live` made small and quick, so that the budget loads all keys several times."""

from __future__ import annotations

import pytest
from suite.pace import Metronome

# three lanes of half a minute, whose processes start slowly where all cores are busy
pytestmark = [pytest.mark.prove, pytest.mark.live, pytest.mark.timeout(400)]

BUDGET = 100.0
LATE_S = 0.5  # a machine that runs all tests at once holds statements up for so long, or for longer


def traffic(seconds):
    from freshness_live.traffic import Traffic

    # half a minute is six round trips of the budget through all keys, and a price near 1, where the controller begins
    return Traffic(keys=500, reads=2_000.0, changes=100.0, seconds=seconds, readers=1)


@pytest.fixture(scope="module")
def servers():
    from freshness_live.servers import servers

    with servers() as started:
        yield started


@pytest.fixture(scope="module")
def results(servers):
    """Of price, fixed and TTL, at one budget and before the same traffic."""
    from freshness_live.lane import POLICIES, Lane, measure

    lanes = [Lane(policy, BUDGET, traffic(30.0)) for policy in POLICIES]
    with Metronome() as control:
        found = {lane.policy: measure(lane, servers, look=12.0, tell=_tell_nobody) for lane in lanes}
    for each in found.values():
        print(each)
    return found, LATE_S + 2 * control.latest


def _tell_nobody(text):
    pass


def test_price_is_fresher_than_fixed_and_ttl_for_the_same_rows(results):
    found, _ = results
    price, fixed, ttl = found["price"], found["fixed"], found["ttl"]
    assert max(price.rows, fixed.rows) < BUDGET * 1.1
    # `make freshness-live` has the goal 0.55; here much of the time goes into learning
    assert price.stale < 0.75 * fixed.stale
    assert price.stale < 0.75 * ttl.stale


def test_reads_of_price_never_wait(results):
    found, _ = results
    assert found["price"].reads > 0
    assert found["price"].missing == 0
    assert found["ttl"].missing == 0  # its readers have loaded what was not there
    assert found["ttl"].took[1] > 0


@pytest.mark.parametrize("policy", ["price", "fixed"])
def test_budget_holds_in_the_log_of_the_database(results, policy):
    found, late = results
    assert 0.3 < found[policy].loads.worst(BUDGET, BUDGET, late=late).share <= 1.0
    assert found[policy].rows > 0.5 * BUDGET


def test_sampler_tells_the_truth(servers):
    """With draws enough that half of the truth, or twice as much, would not pass for it."""
    from freshness_live.lane import Lane, measure
    from freshness_live.traffic import Traffic

    busy = Traffic(keys=3_000, reads=3_000.0, changes=1_500.0, seconds=90.0, readers=1)
    result = measure(Lane("price", 600.0, busy), servers, look=54.0, tell=_tell_nobody)
    (window,) = result.windows
    said, true = window.said, window.true
    print(said, true)
    # 95 % would be wrong one time in twenty: half as wide again hardly ever is
    low, high = (said.share + 1.5 * (limit - said.share) for limit in (said.low, said.high))
    assert low <= true <= high
    assert 0.5 * true < said.low
    assert said.high < 2.0 * true


def test_budget_holds_across_a_restart(servers):
    from freshness_live.lane import Lane, measure

    lane = Lane("price", BUDGET, traffic(9.0), restart=True)
    with Metronome() as control:
        result = measure(lane, servers, look=60.0, tell=_tell_nobody)
    late = LATE_S + 2 * control.latest
    assert 0.3 < result.loads.worst(BUDGET, BUDGET, late=late).share <= 1.0
    assert result.missing == 0
