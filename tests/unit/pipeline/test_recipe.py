"""The ttls of a batch: never longer than configured, shorter by at most the jitter's share, and not all the same."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cacheupdater.pipeline.recipe import Recipe

LOTS = [0.0, 0.3, 0.999999]


def ttls(keys, *, ttl=300.0, jitter=0.1, lot=0.5):
    return list(Recipe(None, None, None, ttl, jitter).ttls_ms(keys, lot))


@pytest.mark.parametrize("keys", [1, 2, 7, 200])
@pytest.mark.parametrize("lot", LOTS)
@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("ttl", [0.001, 0.05, 1.0, 300.0, 86_400.0])
def test_ttls_stay_within_the_share_of_the_jitter(keys, lot, jitter, ttl):
    longest = ttl * 1000.0
    drawn = ttls(keys, ttl=ttl, jitter=jitter, lot=lot)
    assert len(drawn) == keys
    assert max(drawn) <= longest
    assert min(drawn) >= max(1.0, longest * (1.0 - jitter))


@pytest.mark.parametrize("lot", LOTS)
def test_a_batch_does_not_expire_at_once(lot):
    """200 keys over a tenth of five minutes: at least 100 ms from one to the next, over most of the share."""
    drawn = ttls(200, lot=lot)
    assert all(one - other >= 100 for one, other in pairwise(drawn))
    assert drawn[0] - drawn[-1] >= 0.9 * 30_000


def test_single_keys_that_are_written_apart_do_not_expire_together_either():
    lives = [ttls(1, lot=lot / 10)[0] for lot in range(10)]
    assert len(set(lives)) == 10
    assert max(lives) - min(lives) >= 0.8 * 30_000


def test_without_jitter_each_value_lives_exactly_its_ttl():
    assert ttls(3, jitter=0.0) == [300_000] * 3


def test_a_ttl_below_a_millisecond_is_one_because_redis_refuses_none():
    assert ttls(2, ttl=0.0001) == [1, 1]
