"""Flask-Caching's Redis backends, whose reads and writes leave hints. CACHE_TYPE names one; nothing else changes.

    CACHE_TYPE = "cacheupdater_client.flask.RedisCache"

`RedisSentinelCache` and `RedisClusterCache` replace Flask-Caching's classes of these names. Keys and values stay
Flask-Caching's. Hints go where CACHEUPDATER_EMIT says, or `CACHE_OPTIONS = {"emit": …, "only": […]}`, as with any client of
ours. Flask-Caching makes one backend for each `Cache`, which lives as long as the application does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask_caching.backends import rediscache

from cacheupdater_client.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from flask import Flask

_OURS = ("emit", "only")


class _Hinting:
    """A mixin before a backend of Flask-Caching, whose methods `super()` finds."""

    _read_client: object  # Flask-Caching's; on sentinels, a replica's
    _write_client: object

    def __init__(
        self,
        *args: object,
        emit: str | None = "auto",
        only: Sequence[str | bytes] | None = None,
        **options: object,
    ) -> None:
        super().__init__(*args, **options)  # the backend's
        for client in (self._read_client, self._write_client):
            wrap(client, emit=emit, only=only)

    @classmethod
    def factory(
        cls, app: Flask, config: dict[str, object], args: list[object], kwargs: dict[str, object]
    ) -> Self:
        """As Flask-Caching's, which hands CACHE_OPTIONS to redis-py, too: it knows nothing of ours."""
        options = config.get("CACHE_OPTIONS")
        if isinstance(options, dict):
            config["CACHE_OPTIONS"] = {name: value for name, value in options.items() if name not in _OURS}
        made: Self = super().factory(app, config, args, kwargs)  # type: ignore[misc]  # the backend's
        return made


class RedisCache(_Hinting, rediscache.RedisCache):
    """`flask_caching.backends.RedisCache`, whose commands leave hints."""


class RedisSentinelCache(_Hinting, rediscache.RedisSentinelCache):
    """`flask_caching.backends.RedisSentinelCache`, whose commands leave hints."""


class RedisClusterCache(_Hinting, rediscache.RedisClusterCache):
    """`flask_caching.backends.RedisClusterCache`, whose commands leave hints."""
