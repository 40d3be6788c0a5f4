"""All keys of a namespace that lie in Redis count as changed: a table was truncated, or changes were lost.

A feed tells no keys then, so Redis is asked for them, page by page. The reader calls `sweep` and puts what it yields on the queue,
like keys of changed rows. A load that was under way at the sweep may still write an old value where no key was. Therefore
the reader sweeps once more after `AGAIN_S`, when no such load can write any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cacheupdater_client.protocol.fence import LOAD_AGE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from cacheupdater_client.protocol.patterns import Pattern

AGAIN_S = LOAD_AGE_S + 1.0  # seconds: no older load is written


class Scanning(Protocol):
    """What a writer offers for this."""

    def scan(self, prefix: bytes) -> AsyncIterator[Sequence[bytes]]:
        """The keys in Redis that begin so, page by page, some perhaps twice. Raises Unavailable or Faulty."""
        ...


async def sweep(redis: Scanning, patterns: Iterable[Pattern]) -> AsyncIterator[list[bytes]]:
    """The keys in Redis that these patterns take."""
    for pattern in patterns:
        async for page in redis.scan(pattern.prefix):
            if keys := [key for key in page if pattern.takes(key)]:
                yield keys
