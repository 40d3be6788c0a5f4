"""Drop-in Redis clients that tell an updater which keys are read, missed and changed.

    from cacheupdater_client import Redis
    r = Redis.from_url("redis://localhost", emit="unix:///run/cacheupdater/hints.sock")

`cacheupdater_client.asyncio.Redis` is the same for asyncio. Importing this package loads redis-py and msgspec only.
"""

from __future__ import annotations

from cacheupdater_client.redis import Redis, wrap
from cacheupdater_client.sender import Stats, sender

__all__ = ["Redis", "Stats", "close", "stats", "wrap"]


def stats() -> Stats:
    """What has become of this process' hints: emitted = delivered + waiting + dropped."""
    return sender.stats()


def close(timeout: float = 1.0) -> None:
    """Sends what waits, for at most `timeout` seconds. Later hints start the sender again; so none is needed at exit."""
    sender.close(timeout)
