"""Django's own `RedisCache`, whose reads and writes leave hints. Settings name it as BACKEND; nothing else changes.

    CACHES = {"default": {"BACKEND": "cacheupdater_client.django.cache.RedisCache", "LOCATION": "redis://127.0.0.1:6379/0"}}

Keys and values stay Django's. Hints go where CACHEUPDATER_EMIT says, or `OPTIONS: {"emit": …, "only": […]}`, as with any
client of ours. Django makes one cache for each thread, which lives as long as the thread does.
django-redis needs no backend of ours: `OPTIONS: {"REDIS_CLIENT_CLASS": "cacheupdater_client.Redis"}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.cache.backends import redis

from cacheupdater_client.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Sequence


class RedisCacheClient(redis.RedisCacheClient):  # type: ignore[misc]  # Django has no types
    """Django's client of the servers, over our drop-in class."""

    def __init__(
        self,
        servers: Sequence[str],
        *args: object,
        emit: str | None = "auto",
        only: Sequence[str | bytes] | None = None,
        **options: object,
    ) -> None:
        super().__init__(servers, *args, **options)
        self._emit, self._only = emit, only
        self._made: dict[int, Redis] = {}  # one for each server at most

    def get_client(self, key: object = None, *, write: bool = False) -> Redis:
        """As Django's, which makes a client for each command. Here each server has one: making ours costs more."""
        del key
        pool = self._get_connection_pool(write)
        found = self._made.get(id(pool))
        if found is None:
            found = Redis(connection_pool=pool, emit=self._emit, only=self._only)
            self._made[id(pool)] = found
        return found


class RedisCache(redis.RedisCache):  # type: ignore[misc]  # as above
    """`django.core.cache.backends.redis.RedisCache`, whose commands leave hints."""

    def __init__(self, server: str | Sequence[str], params: dict[str, object]) -> None:
        super().__init__(server, params)
        self._class = RedisCacheClient
