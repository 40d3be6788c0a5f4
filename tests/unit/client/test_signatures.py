"""Code that asks our clients for their parameters finds redis-py's, and ours."""

from __future__ import annotations

import inspect

import pytest
import redis
import redis.asyncio

import cacheupdater_client
import cacheupdater_client.asyncio

PAIRS = [
    (cacheupdater_client.Redis, redis.Redis),
    (cacheupdater_client.RedisCluster, redis.RedisCluster),
    (cacheupdater_client.Sentinel, redis.Sentinel),
    (cacheupdater_client.asyncio.Redis, redis.asyncio.Redis),
    (cacheupdater_client.asyncio.RedisCluster, redis.asyncio.RedisCluster),
    (cacheupdater_client.asyncio.Sentinel, redis.asyncio.Sentinel),
]


@pytest.mark.parametrize(("ours", "plain"), PAIRS)
def test_client_shows_redis_pys_parameters_with_their_defaults_and_its_own(ours, plain):
    expected = dict(inspect.signature(plain.__init__).parameters)
    found = dict(inspect.signature(ours.__init__).parameters)
    assert (found.pop("emit").default, found.pop("only").default) == ("auto", None)
    assert found == expected
    assert "emit" in inspect.signature(ours).parameters
