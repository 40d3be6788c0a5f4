"""The drop-in clients for asyncio: `Redis`, `RedisCluster` and `Sentinel`, named as in redis-py."""

from __future__ import annotations

from cacheupdater_client.asyncio.cluster import RedisCluster
from cacheupdater_client.asyncio.redis import Redis
from cacheupdater_client.asyncio.sentinel import Sentinel

__all__ = ["Redis", "RedisCluster", "Sentinel"]
