"""A consumer of a feed as the updater is one: confirms each batch, and starts again after an error that time may heal."""

from __future__ import annotations

import asyncio

from cacheupdater.errors import Unavailable

AGAIN_S = 0.1
PATIENCE_S = 60.0


class Follower:
    """Follows the feed until `stop`, and keeps what it was told."""

    def __init__(self, feed):
        self.feed = feed
        self.ids, self.emptied, self.errors = [], [], []
        self.lacks = ()  # what the last batch has said
        self.changes = self.starts = 0
        self.at = {}  # when each key was told last, by the loop's clock
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self):
        while True:
            try:
                await self.feed.start()
                self.starts += 1
                async for batch in self.feed.batches():
                    self._told(batch)
                    await self.feed.confirm(batch.position)
            except Unavailable as e:
                self.errors.append(e)
                await asyncio.sleep(AGAIN_S)

    def _told(self, batch):
        now = asyncio.get_running_loop().time()
        self.emptied += batch.emptied
        self.lacks = batch.lacks
        self.changes += len(batch.changes)
        for change in batch.changes:
            for row in change.rows:
                self.ids.append(row["id"])
                self.at[row["id"]] = now

    async def until(self, condition, patience=PATIENCE_S):
        """Waits until the condition holds."""
        async with asyncio.timeout(patience):
            while not condition():
                await asyncio.sleep(0.005)
                if self._task.done():
                    self._task.result()

    async def until_started(self, times=1):
        """Waits until the feed has started so often."""
        await self.until(lambda: self.starts >= times)

    async def stop(self):
        """Ends, and gives up the turn."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await self.feed.stop()
