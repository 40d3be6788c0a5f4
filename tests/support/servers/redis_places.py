"""The kinds of Redis that an adapter must reach alike: one server, a cluster, and a primary that sentinels name."""

from __future__ import annotations

import redis.asyncio


def _one_server(fixture, options):
    url = fixture("redis_url")
    return url, redis.asyncio.Redis.from_url(url, **options)


def _cluster(fixture, options):
    servers = fixture("redis_cluster")
    nodes = [redis.asyncio.cluster.ClusterNode("127.0.0.1", node.port) for node in servers.nodes]
    return servers.url, redis.asyncio.RedisCluster(startup_nodes=nodes, **options)


def _sentinels(fixture, options):
    servers = fixture("redis_sentinels")
    return servers.url, redis.asyncio.Redis(port=servers.primary().port, **options)


_KINDS = {"redis": _one_server, "cluster": _cluster, "sentinel": _sentinels}


def worlds(real, memory, **options):
    """By name, what makes a world of a test's fixtures: `real` of a URL and the client of an application, `memory` of nothing."""
    made = {name: lambda fixture, kind=kind: real(*kind(fixture, options)) for name, kind in _KINDS.items()}
    return {**made, "memory": lambda _: memory()}
