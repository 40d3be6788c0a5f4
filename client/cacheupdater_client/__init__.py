"""Drop-in Redis clients that tell an updater which keys are read, missed and changed.

    from cacheupdater_client import Redis
    r = Redis.from_url("redis://localhost", emit="unix:///run/cacheupdater/hints.sock")

`RedisCluster` and `Sentinel` replace redis-py's classes of these names. `cacheupdater_client.asyncio` has all three for
asyncio. `instrument` makes redis-py's own classes leave hints, for frameworks that make their clients themselves.

Importing these names loads redis-py and msgspec only. Importing the package itself loads neither: a collector uses the outbox
and the links alone, and redis-py would take 15 MiB of the little memory that it has beside an application.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater_client.cache.cache import Cache
    from cacheupdater_client.calls import no_emit
    from cacheupdater_client.cluster import RedisCluster
    from cacheupdater_client.instrumenting import instrument, uninstrument
    from cacheupdater_client.redis import Redis
    from cacheupdater_client.sender import Stats
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

_HOMES = {
    "Cache": "cache.cache",
    "Redis": "redis",
    "RedisCluster": "cluster",
    "Sentinel": "sentinel",
    "Stats": "sender",
    "instrument": "instrumenting",
    "no_emit": "calls",
    "uninstrument": "instrumenting",
    "wrap": "wrapping",
}
"""The module of each name that is imported when it is first asked for."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def stats() -> Stats:
    """The counts of this process' hints: emitted = delivered + waiting + dropped."""
    from cacheupdater_client.sender import sender  # noqa: PLC0415  see the module

    return sender.stats()


def close(timeout: float = 1.0) -> None:
    """Sends the waiting hints, for at most `timeout` seconds. Later hints start the sender again.

    A program need not call it at exit: the client does so itself.
    """
    from cacheupdater_client.sender import sender  # noqa: PLC0415  see the module

    sender.close(timeout)
