"""Redis beyond one node for tests: clusters and sentinels that the run starts itself, at the first test that asks.

All tests of a process share `redis_cluster` and `redis_sentinels`, which are healed before each test: a test may kill, freeze,
move and promote nodes freely. `own_redis_cluster` is for one test alone.
"""

from __future__ import annotations

import pytest

from cacheupdater.local.redis_cluster import RedisCluster
from cacheupdater.local.redis_sentinel import RedisSentinels


@pytest.fixture(scope="session")
def session_redis_cluster():
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(session_redis_cluster):
    session_redis_cluster.heal()
    return session_redis_cluster


@pytest.fixture
def own_redis_cluster():
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def session_redis_sentinels():
    with RedisSentinels() as sentinels:
        yield sentinels


@pytest.fixture
def redis_sentinels(session_redis_sentinels):
    session_redis_sentinels.heal()
    return session_redis_sentinels
