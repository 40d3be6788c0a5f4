"""The tasks of an asyncio cache that refresh values. Built like `cacheupdater_client.cache.background`.

A task runs in the loop of the reader that began it, with a copy of its context. When the loop ends, so does the refresh, and its
lease expires.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from cacheupdater_client.cache import forks
from cacheupdater_client.cache.background import CLOSE_S, Refreshes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from cacheupdater_client.cache.flights import Flight
    from cacheupdater_client.cache.steps import Begun

TASKS_MAX = 100  # loads at the same time; beyond this readers get the old value, and nobody refreshes it


class Background:
    """The tasks of one asyncio cache."""

    def __init__(self) -> None:
        self._closed = False
        self.begin()
        forks.enrol(self)

    def begin(self) -> None:
        """Nothing runs."""
        self._refreshes = Refreshes()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109  as the client's own `close`
        """No load begins from now on. Waits for those of this loop, for at most so many seconds, then cancels them."""
        self._closed = True
        here, current = asyncio.get_running_loop(), asyncio.current_task()
        tasks = [task for task in self._tasks if task.get_loop() is here and task is not current]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            for task in late:
                task.cancel()
            if late:  # they end their leases, however little time the application gives
                await asyncio.wait(late, timeout=CLOSE_S)

    def start(
        self,
        keys: Iterable[bytes],
        timeout_s: float,
        run: Callable[[Mapping[bytes, Flight]], Awaitable[object]],
    ) -> Begun:
        """Has `run` awaited in a task, with the flights of keys that nobody refreshes yet."""
        is_full = self._closed or len(self._tasks) >= TASKS_MAX
        new, begun = self._refreshes.take(() if is_full else keys, timeout_s)
        if new:
            self.call(lambda: self._run(run, new))
        return begun

    def busy(self, keys: Iterable[bytes], timeout_s: float) -> Begun | None:
        """As `Refreshes.busy`. Of a closed cache nothing can begin."""
        return self._refreshes.busy(() if self._closed else keys, timeout_s)

    def call(self, work: Callable[[], Awaitable[object]]) -> None:
        """Has this awaited in a task. Its errors go nowhere."""
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(_quietly(work), name="cacheupdater-refresh")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(
        self, run: Callable[[Mapping[bytes, Flight]], Awaitable[object]], flights: Mapping[bytes, Flight]
    ) -> None:
        try:
            await run(flights)
        finally:
            self._refreshes.end(flights)


async def _quietly(work: Callable[[], Awaitable[object]]) -> None:
    with contextlib.suppress(Exception):  # the loader's, which the steps have counted
        await work()
