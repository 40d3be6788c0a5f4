"""A proxy for regions of dogpile.cache: with it their reads and writes leave hints. Nothing else changes.

    region = make_region().configure("dogpile.cache.redis", arguments={…}, wrap=[HintProxy])

It works with dogpile.cache.redis, redis_cluster and redis_sentinel, and makes the backend's own clients leave the hints. So
a hint has the key that Redis gets, behind the region's `key_mangler`. Keys and values stay dogpile's. Hints go where
CACHEUPDATER_EMIT says, or `wrap=[HintProxy(emit=…, only=[…])]`, as with any client of ours. A backend without Redis, such as
dogpile.cache.memory in a test, leaves none. A proxy lives as long as its region.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dogpile.cache.proxy import ProxyBackend

from cacheupdater_client.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from dogpile.cache.api import CacheBackend


class HintProxy(ProxyBackend):
    """Makes the Redis clients of a region's backend leave hints, when the region is configured."""

    def __init__(self, *, emit: str | None = "auto", only: Sequence[str | bytes] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # dogpile's has no types
        self._emit, self._only = emit, only

    def wrap(self, backend: CacheBackend) -> Self:
        """As dogpile's. Other proxies may stand on either side."""
        inmost = backend
        while isinstance(inmost, ProxyBackend):
            inmost = inmost.proxied
        for name in ("reader_client", "writer_client"):  # one client, but with sentinels
            client = getattr(inmost, name, None)
            if client is not None:
                wrap(client, emit=self._emit, only=self._only)
        return super().wrap(backend)
