"""Waiting until leases end or floors move, for all waiting tasks of a cache. Built like `cacheupdater_client.cache.watch`.

One of the waiting tasks asks, and the next one takes over when it ends. Tasks of several event loops may share a cache only
if they may share its client.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Generic

from cacheupdater_client.cache import forks
from cacheupdater_client.cache.watch import POLL_S, One, Waiter, Waiters, freed, keys_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence


class Watch(Generic[One]):
    """The waiting of one asyncio cache. `held` asks Redis whether each is still as it was."""

    def __init__(self, held: Callable[[Sequence[One]], Awaitable[list[bool]]]) -> None:
        self._held: Callable[[Sequence[One]], Awaitable[list[bool]]] = held
        self.begin()
        forks.enrol(self)

    def begin(self) -> None:
        """Nobody waits."""
        self._asking = False
        self._waiters: Waiters[One] = Waiters()

    async def rest(self, keys: Iterable[One], within: float) -> float:
        """Returns when none of these is as it was, or after `within` seconds. Returns the seconds that are left."""
        waiter, ends = Waiter(set(keys)), monotonic() + within
        self._waiters.add(waiter)
        try:
            while waiter.keys and (left := ends - monotonic()) > 0:
                await asyncio.sleep(min(POLL_S, left))
                if waiter.keys and not self._asking:
                    await self._ask()
        finally:
            self._waiters.remove(waiter)
        return ends - monotonic()

    async def _ask(self) -> None:
        waiters = self._waiters.due(monotonic())
        if not waiters:
            return
        keys = keys_of(waiters)
        self._asking = True
        try:
            freed(waiters, keys, await self._held(keys))
        finally:
            self._asking = False
