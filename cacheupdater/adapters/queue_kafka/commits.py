"""Gathers the commits of all partitions into few requests.

Each partition commits ten times a second by itself. Here the commits wait for one another, so that a process sends five
requests a second, and not ten for each partition. During a hand-over no commit waits, for the next owner waits for it. `add`
returns when its own offset has been sent. If the broker fails, every `add` of that request raises the error.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.adapters.queue_kafka.settings import COMMIT_EVERY
from cacheupdater.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


_CLOSED = "the queue is closed: this process is shutting down"


class Done(NamedTuple):
    """What one partition wants to commit."""

    epoch: int
    offset: int


class Commits:
    """The commits of one queue. At most one request is under way, and one offset per partition waits."""

    def __init__(self, send: Callable[[Mapping[int, Done]], Awaitable[None]]) -> None:
        self._send = send
        self._wanted: dict[int, Done] = {}
        self._answer: asyncio.Future[Unavailable | None] | None = (
            None  # for every `add` that waits for the next request
        )
        self._sending: asyncio.Task[None] | None = None
        self._hurried = asyncio.Event()
        self._sent = 0.0

    async def add(self, partition: int, done: Done) -> None:
        """Returns when the commit has been sent. Raises Unavailable. A cancelled caller does not withdraw its commit."""
        self._wanted[partition] = done
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
        answer = self._answer
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._go())
        error = await asyncio.shield(answer)
        if error is not None:
            raise Unavailable(str(error)) from error

    def hurry(self, *, on: bool) -> None:
        """`on` during a hand-over: then commits do not wait."""
        if on:
            self._hurried.set()
        else:
            self._hurried.clear()

    def close(self) -> None:
        """Sends no more commits. Every `add` that still waits raises Unavailable."""
        if self._sending is not None:
            self._sending.cancel()
        self._tell(self._answer, Unavailable(_CLOSED))

    async def _go(self) -> None:
        while self._wanted:
            await self._pace()
            wanted, self._wanted = self._wanted, {}
            answer, self._answer = self._answer, None
            error: Unavailable | None = Unavailable(_CLOSED)
            try:
                await self._send(wanted)
                error = None
            except Unavailable as e:
                error = e
            finally:
                self._tell(answer, error)

    async def _pace(self) -> None:
        clock = asyncio.get_running_loop().time
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._sent + COMMIT_EVERY):
                await self._hurried.wait()
        self._sent = clock()

    def _tell(self, answer: asyncio.Future[Unavailable | None] | None, error: Unavailable | None) -> None:
        if answer is not None and not answer.done():
            answer.set_result(error)
