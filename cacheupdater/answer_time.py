"""How long a server may take to answer, counted only while our loop runs.

A loop can stand still: its container has used up its share of a core, its machine was asleep, a turn was long. Then an answer
lies in a socket that nobody reads. When the loop goes on, it may run a timer that is due before it reads the socket, and the
call would end as if the server had been silent. So the time has parts. Each part has a timer of its own, and a loop that stood
still for long uses up one part only: it has all the others in which to read the answer. A pause shorter than a part counts.

The writer's calls to Redis use it, and those of records. A call lives in one `async with`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

PARTS = 5
"""While the loop runs, the parts add up to the whole time, and almost every call is answered in the first one."""


class AnswerTime:
    """`async with` it: TimeoutError if the block takes longer than so many seconds."""

    __slots__ = ("_left", "_loop", "_part", "_timeout", "_timer")

    def __init__(self, seconds: float) -> None:
        self._part = seconds / PARTS
        self._left = PARTS
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._timeout.__aenter__()
        self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _begin(self) -> None:
        self._timer = self._loop.call_later(self._part, self._end)

    def _end(self) -> None:
        self._left -= 1
        if self._left:
            self._begin()
        else:
            self._timeout.reschedule(self._loop.time())
