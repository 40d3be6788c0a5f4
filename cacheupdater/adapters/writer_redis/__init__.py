"""The writer over Redis: see `by_url`."""

from cacheupdater.adapters.writer_redis.by_url import writer_for
from cacheupdater.adapters.writer_redis.cluster import ClusterWriter
from cacheupdater.adapters.writer_redis.pauses import RedisPauses
from cacheupdater.adapters.writer_redis.standalone import RedisWriter

__all__ = ["ClusterWriter", "RedisPauses", "RedisWriter", "writer_for"]
