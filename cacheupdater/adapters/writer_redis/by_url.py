"""The writer port over Redis: one server, a primary that the sentinels name, or a cluster. The URL says which.

The composition root makes one writer per cache with `writer_for`. Modules: `sessions` (connections and their tokens),
`replies` (the meaning of Redis' replies), `looks` (what readers find), `standalone` and `sentinel`, `cluster` and `slots`,
`pauses` (which namespaces an operator has paused).

Not done here: retries of writes (a failed write is a new load), encoding, the length of pauses.

The least rights that an ACL user needs from Redis 6.2 on, for keys `product:*` (Redis checks the commands of scripts too):
    ~product:* ~__crs:* -@all +time +evalsha +script|load
    +get +set +pexpire +unlink +type +hgetall +hset +hdel, and +select for a database other than 0
For a namespace with `fail_safe` also +pttl. In a cluster also +cluster|slots (in Redis 6.2 +cluster) and +asking.
"""

from __future__ import annotations

from cacheupdater.adapters.writer_redis.cluster import ClusterWriter
from cacheupdater.adapters.writer_redis.standalone import RedisWriter
from cacheupdater.core import cache_url


def writer_for(url: str, *, hold_off_ms: int = 0) -> RedisWriter | ClusterWriter:
    """The writer for this URL. Raises Misconfigured."""
    made = ClusterWriter if isinstance(cache_url.parse(url), cache_url.Cluster) else RedisWriter
    return made(url, hold_off_ms=hold_off_ms)
