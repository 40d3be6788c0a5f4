"""Waiting until leases end, for all waiting tasks of a cache. Built like `cacheupdater_client.cache.watch`.

One of the waiting tasks asks, and the next one takes over when it ends. Tasks of several event loops may share a cache only
if they may share its client.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from cacheupdater_client.cache import forks
from cacheupdater_client.cache.watch import POLL_S, Waiter, Waiters, freed, keys_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence


class Watch:
    """The waiting of one asyncio cache."""

    def __init__(self, leased: Callable[[Sequence[bytes]], Awaitable[list[bool]]]) -> None:
        self._leased = leased
        self.begin()
        forks.enrol(self)

    def begin(self) -> None:
        """Nobody waits."""
        self._asking = False
        self._waiters = Waiters()

    async def rest(self, keys: Iterable[bytes], within: float) -> None:
        """Returns when none of these keys has a lease, or after `within` seconds."""
        waiter, ends = Waiter(set(keys)), monotonic() + within
        self._waiters.add(waiter)
        try:
            while waiter.keys and (left := ends - monotonic()) > 0:
                await asyncio.sleep(min(POLL_S, left))
                if waiter.keys and not self._asking:
                    await self._ask()
        finally:
            self._waiters.remove(waiter)

    async def _ask(self) -> None:
        waiters = self._waiters.due(monotonic())
        if not waiters:
            return
        keys = keys_of(waiters)
        self._asking = True
        try:
            freed(waiters, keys, await self._leased(keys))
        finally:
            self._asking = False
