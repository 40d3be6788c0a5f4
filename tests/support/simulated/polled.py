"""Tables that are polled, and one process's feed over them: the real `core.watermark`, over rows and statements of ours.

A row has a column with the time at which its last transaction began. The row is seen when the transaction commits, perhaps much later.
Nobody sees deleted rows, so these schedules delete none. `Feeds` makes one `PolledLog` for a world, in the place of a log.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right

from cacheupdater.core.watermark import Kept, Place, Row, Watermark
from cacheupdater.feed_ports import Batch, Changed
from cacheupdater.testing.memory_feed import MemoryLog

EVERY_S = 0.1
ROWS_MAX = 3  # of a look
TOLD_MAX = 1000


class PolledLog(MemoryLog):
    """The rows of all tables, and how far they were read and confirmed. Whose turn it is is a log's business."""

    def __init__(self, tables):
        super().__init__()
        self.rows = {table: {} for table in tables}  # by key
        self.kept = {table: Kept(None, None) for table in tables}
        self._changes = 0

    def change(self, table, number, began):
        """A transaction commits, and is seen from now on."""
        self._changes += 1
        self.rows[table][number] = Row(Place(began, (number,)), self._changes)

    def read(self, table, look):
        """The statement of a look."""
        rows = sorted(self.rows[table].values())
        first = 0 if look.after is None else bisect_right(rows, look.after, key=lambda row: row.place)
        return [row for row in rows[first:] if look.until is None or row.place.value <= look.until.value][
            :ROWS_MAX
        ]

    @property
    def idle(self):
        """Whether all rows were told, and none can appear any more before those that were told last."""
        return all(map(self._is_settled, self.rows))

    def _is_settled(self, table):
        """The last row may have got an older time since: from a transaction that began before."""
        settled, front = self.kept[table]
        return settled == front and all(
            settled is not None and row.place <= settled for row in self.rows[table].values()
        )


async def batches(feed, log, world):
    """What `feed` tells while it has the turn."""
    clock = world.seen.clock
    watermarks = {
        table: Watermark(kept, overlap=world.plan.fed.overlap, every=EVERY_S, told_max=TOLD_MAX)
        for table, kept in log.kept.items()
    }
    while True:
        changes = []
        for table, watermark in watermarks.items():
            if (look := watermark.look(clock())) is None:
                continue
            await asyncio.sleep(world.latency())
            feed.refuse_if_away()
            rows = log.read(table, look)
            await asyncio.sleep(world.latency())
            new = watermark.found(look, rows, more=len(rows) == ROWS_MAX, now=clock())
            changes += [Changed(f"public.{table}", ({"id": row.place.key[0]},)) for row in new]
        feed.refuse_if_away()
        yield Batch(changes, {table: each.kept for table, each in watermarks.items()})
        await asyncio.sleep(min(each.wait(clock()) for each in watermarks.values()))
