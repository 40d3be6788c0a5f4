"""For asyncio: the drop-in clients `Redis`, `RedisCluster` and `Sentinel`, named as in redis-py, `Cache` and `no_emit`."""

from __future__ import annotations

from cacheupdater_client.asyncio.cache import Cache
from cacheupdater_client.asyncio.cluster import RedisCluster
from cacheupdater_client.asyncio.redis import Redis
from cacheupdater_client.asyncio.sentinel import Sentinel
from cacheupdater_client.calls import no_emit

__all__ = ["Cache", "Redis", "RedisCluster", "Sentinel", "no_emit"]
