"""The drop-in `redis.asyncio.sentinel.Sentinel`: the clients that it makes leave hints."""

from __future__ import annotations

from typing import Any

from redis.asyncio import sentinel

from cacheupdater_client.asyncio.redis import Redis
from cacheupdater_client.sentinel import EmittingSentinel
from cacheupdater_client.signatures import like


class Sentinel(EmittingSentinel, sentinel.Sentinel):
    """`redis.asyncio.sentinel.Sentinel` whose clients leave hints: see `cacheupdater_client.sentinel`."""

    _clients = Redis

    @like(sentinel.Sentinel.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
