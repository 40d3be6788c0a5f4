"""Drop-in Redis clients that tell an updater which keys are read, missed and changed.

    from cacheupdater_client import Redis
    r = Redis.from_url("redis://localhost", emit="unix:///run/cacheupdater/hints.sock")

`RedisCluster` and `Sentinel` replace redis-py's classes of these names. `cacheupdater_client.asyncio` has all three for
asyncio. `instrument` makes redis-py's own classes leave hints, for frameworks that make their clients themselves. Importing this package loads redis-py and msgspec only.
"""

from __future__ import annotations

from cacheupdater_client.cache.cache import Cache
from cacheupdater_client.calls import no_emit
from cacheupdater_client.cluster import RedisCluster
from cacheupdater_client.instrumenting import instrument, uninstrument
from cacheupdater_client.redis import Redis
from cacheupdater_client.sender import Stats, sender
from cacheupdater_client.sentinel import Sentinel
from cacheupdater_client.wrapping import wrap

__all__ = [
    "Cache",
    "Redis",
    "RedisCluster",
    "Sentinel",
    "Stats",
    "close",
    "instrument",
    "no_emit",
    "stats",
    "uninstrument",
    "wrap",
]


def stats() -> Stats:
    """The counts of this process' hints: emitted = delivered + waiting + dropped."""
    return sender.stats()


def close(timeout: float = 1.0) -> None:
    """Sends the waiting hints, for at most `timeout` seconds. Later hints start the sender again.

    A program need not call it at exit: the client does so itself.
    """
    sender.close(timeout)
