"""Tells the queue up to where everything is finished. Always the last step.

One per owned partition; it remembers what it has committed, so that nothing is committed twice or backwards, and
the epoch, so that nothing of an older ownership is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.cursors import Cursor
    from cacheupdater.ports import Gained, Queue


class Committer:
    """The `done` cursor of one partition, as the queue knows it."""

    def __init__(self, queue: Queue, gained: Gained, cursor: Cursor) -> None:
        self._queue = queue
        self._gained = gained
        self._cursor = cursor
        self._committed = gained.offset

    async def commit(self) -> None:
        """Commit, if anything was finished since the last time."""
        done = self._cursor.advance()
        if done > self._committed:
            await self._queue.commit(self._gained.partition, epoch=self._gained.epoch, done=done)
            self._committed = done
