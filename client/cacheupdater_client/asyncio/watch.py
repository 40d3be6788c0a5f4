"""Waiting until leases end or floors move, for all waiting tasks of a cache. Built like `cacheupdater_client.cache.watch`.

One of the waiting tasks asks, and the next one takes over when it ends. Tasks of several event loops may share a cache only
if they may share its client.
"""

from __future__ import annotations

import asyncio
import contextlib
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
        self._sleepers: dict[Waiter[One], asyncio.Future[None]] = {}

    async def rest(self, keys: Iterable[One], within: float) -> float:
        """Returns when none of these is as it was, or after `within` seconds. Returns the seconds that are left."""
        waiter, ends = Waiter(set(keys)), _now() + within
        self._waiters.add(waiter)
        try:
            while waiter.keys and (left := ends - _now()) > 0:
                # those who sleep cost nothing: ten thousand that look at a clock would fill the event loop
                await (self._sleep(waiter, left) if self._asking else self._ask_for_all(waiter, ends))
        finally:
            self._waiters.remove(waiter)
            if not self._asking:
                self._wake(next(iter(self._sleepers), None))
        return ends - _now()

    async def _sleep(self, waiter: Waiter[One], within: float) -> None:
        """Until the wait is over, or nobody asks any more."""
        awake = self._sleepers[waiter] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((awake,), timeout=within)
        finally:
            self._sleepers.pop(waiter, None)

    async def _ask_for_all(self, waiter: Waiter[One], ends: float) -> None:
        self._asking = True
        try:
            while waiter.keys and (left := ends - _now()) > 0:
                await asyncio.sleep(min(POLL_S, left))
                await self._ask()
        finally:
            self._asking = False

    async def _ask(self) -> None:
        waiters = self._waiters.due(_now())
        if waiters:
            keys = keys_of(waiters)
            held = await self._held(keys)
            self._waiters.answered(_now())
            for each in freed(waiters, keys, held):
                self._wake(each)

    def _wake(self, waiter: Waiter[One] | None) -> None:
        awake = self._sleepers.pop(waiter, None) if waiter is not None else None
        if awake is None:
            return
        loop = awake.get_loop()
        if loop is asyncio.get_running_loop():
            _end(awake)
        else:
            with contextlib.suppress(RuntimeError):  # that loop is closed, and its tasks with it
                loop.call_soon_threadsafe(_end, awake)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _end(awake: asyncio.Future[None]) -> None:
    if not awake.done():
        awake.set_result(None)
