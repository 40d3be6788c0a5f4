"""Gathers the commits of all lanes, so that a few calls a second carry the commits of thousands of partitions.

Each partition commits by itself, up to ten times a second. The queue makes one `Commits` and runs it as a task. A commit waits a
few milliseconds for others; while a call is under way, all that comes meanwhile waits for the next one. `add` returns when its own
progress has been sent. If the depot fails, each `add` of that call raises the error.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.errors import CacheUpdaterError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Progress

GATHER = 0.005  # seconds; a hand-over waits for its commit, so this is not felt

_CLOSED = "the queue is closed: this process is shutting down"


class Commits:
    """The commits of one queue. At most one call is under way, and one progress per lane waits."""

    def __init__(self, send: Callable[[Mapping[Lane, Progress]], Awaitable[None]]) -> None:
        self._send = send
        self._wanted: dict[Lane, Progress] = {}
        self._any = asyncio.Event()
        self._answers: list[asyncio.Future[Unavailable | None]] = []

    async def add(self, progress: Mapping[Lane, Progress]) -> None:
        """Returns when the progress has been sent. Raises Unavailable. A cancelled caller does not withdraw its commit."""
        for lane, each in progress.items():
            before = self._wanted.get(lane)
            self._wanted[lane] = _merged(before, each) if before else each
        answer: asyncio.Future[Unavailable | None] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self._any.set()
        error = await answer
        if error is not None:
            raise Unavailable(str(error)) from error

    async def run(self) -> None:
        """Runs until it is cancelled. Then each `add` that still waits raises Unavailable."""
        try:
            while True:
                await self._any.wait()
                await asyncio.sleep(GATHER)
                await self._go()
        finally:
            _tell(self._answers, Unavailable(_CLOSED))

    async def _go(self) -> None:
        wanted, self._wanted = self._wanted, {}
        answers, self._answers = self._answers, []
        self._any.clear()
        error: Unavailable | None = Unavailable(_CLOSED)
        try:
            await self._send(wanted)
            error = None
        except Unavailable as e:
            error = e
        except CacheUpdaterError as e:
            error = Unavailable(str(e))
            raise
        finally:
            _tell(answers, error)


def _merged(one: Progress, other: Progress) -> Progress:
    """Both of one lane. Of an older epoch nothing is kept."""
    if one.epoch != other.epoch:
        return max(one, other, key=lambda progress: progress.epoch)
    return other._replace(
        scan=max(one.scan, other.scan),
        done=max(one.done, other.done),
        finished=[*one.finished, *other.finished],
    )


def _tell(answers: list[asyncio.Future[Unavailable | None]], error: Unavailable | None) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_result(error)
