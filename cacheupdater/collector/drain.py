"""A drain: `cacheupdater collect --drain`, which carries what lies on an old queue to a new one when a team moves.

`cli.collect` builds one `Drain` per process. It is an ordinary member of the old queue, beside updaters and other drains, and ends
by itself with exit code 0 once nothing has come for `QUIET_S` and all partitions are its own. If it is stopped before, its exit
code is another, so that a supervisor starts it again. It takes no hints from applications: that is a collector's work. Here are
its start and its end. `carrying` does the work, and `sending` is the way to the new queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cacheupdater.collector.carrying import AGAIN_S, Carrying
from cacheupdater.collector.links import made_link
from cacheupdater.collector.old_queue import old_queue, refuse_missing, refuse_the_same
from cacheupdater.collector.pages import Pages, watch
from cacheupdater.collector.sending import Sending
from cacheupdater.collector.shared_queue import shared_queue
from cacheupdater.core.draining import QUIET_S
from cacheupdater.errors import Unavailable, first_error
from cacheupdater.pipeline.losses import Losses
from cacheupdater.pipeline.notices import Notices
from cacheupdater_client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cacheupdater.collector.shared_queue import SharedQueue
    from cacheupdater_client.transports import Link

T = TypeVar("T")

log = logging.getLogger(__name__)

STOPPED_EXIT = 75  # EX_TEMPFAIL of sysexits.h: what lies on the old queue needs another run


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """What one drain does. Both URLs may hold a password."""

    drain: str  # the old queue, as updaters write it
    queue: str  # the new one, as collectors write it
    admin: str | None = None  # host:port of /metrics, /livez and /readyz
    quiet_s: float = QUIET_S


class Drain:
    """The drain of one process. A `cli.serve.Runnable`."""

    def __init__(self, settings: DrainSettings) -> None:
        """Raises ValueError if a URL names no queue, and Misconfigured if both name the same one."""
        refuse_the_same(settings.drain, settings.queue)
        self._settings = settings
        self._pages = Pages(settings.admin, "drain")
        self._notices = Notices(time.monotonic)
        self._observer = Losses(self._pages.observer, self._notices)
        self._config = old_queue(settings.drain)
        self._link: Link = made_link(settings.queue)

    def reload(self) -> None:
        """A drain has no settings that may change while it runs."""
        log.info("a drain reads its settings once; start it again to change them")

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Runs until the old queue is drained (0) or `stop` is set. Calls `ready` once both queues are found."""
        old = shared_queue(self._config, observer=self._observer, notices=self._notices)
        async with AsyncExitStack() as stack:
            threads = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="link"))
            loop = asyncio.get_running_loop()

            async def aside(work: Callable[[], bool]) -> bool:
                return await loop.run_in_executor(threads, work)

            sending = Sending(
                self._link,
                aside,
                name=shown(self._settings.queue),
                observer=self._observer,
                notices=self._notices,
            )

            async def leave() -> None:
                await loop.run_in_executor(threads, self._link.close)

            stack.push_async_callback(leave)
            stack.push_async_callback(old.close)
            await self._pages.serve(
                stack, lambda: {"old_queue": old.joined, "queue": sending.connected}, self._notices
            )
            watching = asyncio.ensure_future(watch(self._notices, self._observer))
            stack.callback(watching.cancel)
            if not await _unless(stop, self._find(old, sending)):
                return STOPPED_EXIT
            ready(f"{self._config} -> {shown(self._settings.queue)}")
            carrying = Carrying(
                old,
                sending,
                observer=self._observer,
                notices=self._notices,
                quiet_s=self._settings.quiet_s,
            )
            try:
                drained = await carrying.run(stop)
            except BaseExceptionGroup as errors:
                raise first_error(errors) from errors
            said = (
                "nothing is left on the old queue" if drained else "stopped before the old queue was drained"
            )
            log.info("%s; %s", said, sending.sentence)
        return 0 if drained else STOPPED_EXIT

    async def _find(self, old: SharedQueue, sending: Sending) -> bool:
        """Waits for both queues. Raises Misconfigured if there is no old one."""
        while True:
            try:
                await refuse_missing(self._config)
                break
            except Unavailable as e:
                self._notices.trouble("queue_missing", "", f"waiting for the old queue: {e}")
                await asyncio.sleep(AGAIN_S)
        await old.start()
        await sending.greet()
        return True


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, T]) -> T | None:
    """What this work returns; None if `stop` is set before."""
    working = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        stopped.cancel()
        working.cancel()
        await asyncio.gather(working, stopped, return_exceptions=True)
