"""One reader of a feed under test: a task that keeps what it is told, and the questions that tests ask of it."""

from __future__ import annotations

import asyncio

PATIENCE_S = 60.0  # on any machine, what is expected has come by then


class Reading:
    """Starts the feed, and keeps all its batches in order until `stop`."""

    def __init__(self, feed, *, confirms=False):
        self.feed = feed
        self.batches = []
        self.started = asyncio.Event()
        self._confirms = confirms
        self._come = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self):
        await self.feed.start()
        self.started.set()
        self._come.set()
        async for batch in self.feed.batches():
            if self._confirms:
                await self.feed.confirm(batch.position)
            self.batches.append(batch)  # who sees it may rely on its confirmation
            self._come.set()

    @property
    def rows(self):
        """The rows of all changes so far, one list for each."""
        return [[dict(row) for row in change.rows] for batch in self.batches for change in batch.changes]

    @property
    def ids(self):
        """The keys of all changes so far, in order; of a changed key both."""
        return [row["id"] for rows in self.rows for row in rows if "id" in row]

    @property
    def emptied(self):
        return [table for batch in self.batches for table in batch.emptied]

    async def until_started(self):
        """Waits until the feed has begun to read."""
        await self.until(self.started.is_set)

    async def until(self, condition, patience=PATIENCE_S):
        """Waits until the condition holds, and fails with the feed's own error if that ends the reading."""
        try:
            async with asyncio.timeout(patience):
                while not condition():
                    self._come.clear()
                    waits = asyncio.ensure_future(self._come.wait())
                    await asyncio.wait({waits, self._task}, return_when=asyncio.FIRST_COMPLETED)
                    waits.cancel()
                    if self._task.done() and not condition():
                        self._task.result()
                        raise AssertionError("the feed ended")
        except TimeoutError:
            raise AssertionError(f"not told within {patience} s; told were {self.batches[-20:]}") from None

    async def until_ids(self, *ids):
        """Waits until each of these keys was told."""
        await self.until(lambda: set(ids) <= set(self.ids))

    async def confirm(self):
        """Confirms all batches so far."""
        await self.feed.confirm(self.batches[-1].position)

    async def error(self, patience=PATIENCE_S):
        """Waits until the reading ends by an error."""
        async with asyncio.timeout(patience):
            await asyncio.wait({self._task})
        return self._task.exception()

    async def stop(self):
        """Ends the reading in order."""
        await self.feed.stop()
        _, left = await asyncio.wait({self._task}, timeout=PATIENCE_S)
        self.abandon()
        assert not left, "the feed was stopped, and still waits"

    def abandon(self):
        """Reads no more, and says nothing to the feed."""
        self._task.cancel()
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # else asyncio complains that nobody asked
