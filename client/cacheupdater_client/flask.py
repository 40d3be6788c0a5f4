"""Flask-Caching's Redis backends, whose reads and writes leave hints. CACHE_TYPE names one; nothing else changes.

    CACHE_TYPE = "cacheupdater_client.flask.RedisCache"

`RedisSentinelCache` and `RedisClusterCache` replace Flask-Caching's classes of these names. Keys and values stay
Flask-Caching's. Hints go where CACHEUPDATER_EMIT says, or `CACHE_OPTIONS = {"emit": …, "only": […]}`, as with any client of
ours. Flask-Caching makes one backend for each `Cache`, which lives as long as the application does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask_caching.backends import rediscache

from cacheupdater_client.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask import Flask

_OURS = ("emit", "only")


class _Hinting:
    """A mixin before a backend of Flask-Caching."""

    _read_client: Any  # Flask-Caching's; on a sentinel, a replica's
    _write_client: Any

    def __init__(
        self,
        *args: Any,
        emit: str | None = "auto",
        only: Sequence[str | bytes] | None = None,
        **options: Any,
    ) -> None:
        plain: Any = super()
        plain.__init__(*args, **options)
        for client in (self._read_client, self._write_client):
            wrap(client, emit=emit, only=only)

    @classmethod
    def factory(cls, app: Flask, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """As Flask-Caching's, which hands CACHE_OPTIONS to redis-py, too: it knows nothing of ours."""
        plain: Any = super()
        options = config.get("CACHE_OPTIONS") or {}
        config["CACHE_OPTIONS"] = {name: value for name, value in options.items() if name not in _OURS}
        return plain.factory(app, config, args, kwargs)


class RedisCache(_Hinting, rediscache.RedisCache):
    """`flask_caching.backends.RedisCache`, whose commands leave hints."""


class RedisSentinelCache(_Hinting, rediscache.RedisSentinelCache):
    """`flask_caching.backends.RedisSentinelCache`, whose commands leave hints."""


class RedisClusterCache(_Hinting, rediscache.RedisClusterCache):
    """`flask_caching.backends.RedisClusterCache`, whose commands leave hints."""
