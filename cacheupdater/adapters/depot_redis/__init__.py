"""The depot on Redis Streams: see `depot`."""

from cacheupdater.adapters.depot_redis.depot import RedisDepot

__all__ = ["RedisDepot"]
