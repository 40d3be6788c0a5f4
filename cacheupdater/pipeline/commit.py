"""Commits a partition's progress to the queue: the offset before which everything is finished. Always the last step.

Each owned partition has one `Committer`. It remembers the last committed offset, so that nothing is committed twice or
backwards. It also knows the epoch, so that nothing of an older ownership is committed. It names the packs that were finished
out of order too: a queue that keeps packs in memory can then forget them.
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
        self._finished: list[int] = []  # offsets beyond `done` that the queue does not know yet

    async def commit(self) -> None:
        """Commit, if anything was finished since the last commit."""
        done = self._cursor.advance()
        self._finished += self._cursor.finished()
        if done <= self._committed and not self._finished:
            return
        self._finished = [offset for offset in self._finished if offset >= done]
        sent = len(self._finished)
        await self._queue.commit(
            self._gained.partition, epoch=self._gained.epoch, done=done, finished=self._finished[:sent]
        )
        self._committed = done
        del self._finished[:sent]
