"""All keys of a namespace that lie in Redis count as changed: a table was truncated, or changes were lost.

A feed tells no keys then, so Redis is asked for them, page by page. They are put on the queue like keys of changed rows. A load that
was under way at the sweep may still write an old value where no key was. Therefore each sweep is made once more after `AGAIN_S`, when
no such load can write any more. The trouble `feed_swept` stands until then. A reader has one `Sweeps` for life, and calls `forget`
when its turn ends: what was not confirmed comes again, and is swept again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from cacheupdater.feeds.ledger import Safe
from cacheupdater_client.protocol.fence import LOAD_AGE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cacheupdater.pipeline.notices import Notices
    from cacheupdater_client.protocol.patterns import Pattern

AGAIN_S = LOAD_AGE_S + 1.0  # seconds: no older load is written

Put: TypeAlias = Callable[[list[bytes]], Awaitable[Safe]]
"""Puts some keys on the queue."""


class Scanning(Protocol):
    """What a writer offers for this."""

    def scan(self, prefix: bytes) -> AsyncIterator[Sequence[bytes]]:
        """The keys in Redis that begin so, page by page, some perhaps twice. Raises Unavailable or Faulty."""
        ...


class Swept(NamedTuple):
    """A namespace that must be swept."""

    pattern: Pattern
    why: str  # for people


class Sweeps:
    """The sweeps of one feed."""

    def __init__(self, redis: Scanning) -> None:
        self._redis = redis
        self._again: dict[asyncio.Task[list[Safe]], str] = {}  # the second ones, with their namespaces
        self._open: Counter[str] = Counter()  # sweeps whose second one is not on the queue, by namespace

    async def begin(self, namespace: str, swept: Swept, *, put: Put, notices: Notices) -> list[Safe]:
        """Sweeps once. The second time comes by itself."""
        notices.trouble("feed_swept", namespace, swept.why)
        self._open[namespace] += 1
        safe = await self._sweep(swept.pattern, put)
        again = asyncio.ensure_future(self._sweep_again(swept.pattern, put))
        self._again[again] = namespace
        return [*safe, lambda: _is_safe(again)]

    def settle(self, notices: Notices) -> None:
        """Ends the troubles of namespaces that were swept twice. The error of a second sweep is raised, so the batch comes again."""
        for task in [task for task in self._again if task.done()]:
            task.result()
            namespace = self._again.pop(task)
            self._open[namespace] -= 1
            if not self._open[namespace]:
                notices.over("feed_swept", namespace)

    def forget(self, notices: Notices) -> None:
        """The turn has ended, and another updater may have the next one."""
        for task in self._again:
            task.cancel()
        for namespace in self._open:
            notices.over("feed_swept", namespace)
        self._again.clear()
        self._open.clear()

    async def _sweep(self, pattern: Pattern, put: Put) -> list[Safe]:
        pages = self._redis.scan(pattern.prefix)
        taken = ([key for key in page if pattern.takes(key)] async for page in pages)
        return [await put(keys) async for keys in taken if keys]

    async def _sweep_again(self, pattern: Pattern, put: Put) -> list[Safe]:
        await asyncio.sleep(AGAIN_S)
        return await self._sweep(pattern, put)


def _is_safe(again: asyncio.Task[list[Safe]]) -> bool:
    return again.done() and all(safe() for safe in again.result())
