"""The drop-in clients for asyncio: `Redis`, `RedisCluster` and `Sentinel`, as redis-py's of these names."""

from __future__ import annotations

from cacheupdater_client.asyncio.cluster import RedisCluster
from cacheupdater_client.asyncio.redis import Redis
from cacheupdater_client.asyncio.sentinel import Sentinel

__all__ = ["Redis", "RedisCluster", "Sentinel"]
