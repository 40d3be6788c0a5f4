"""An updater that comes late: when it is told, it commits all that it has read, finished or not, under the epochs that it had.

    python late.py run -c FILE        LATE_FILE names the file that tells it; it answers in the file beside it, `.answer`

A depot must refuse all of it. Where one counted, the ledger has packs that were committed before their loads. It is told while it
is frozen, and commits before its first renewal, which would tell it that it has lost its partitions.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.adapters.depot_sql.postgres import PostgresDepot
from cacheupdater.adapters.depot_sql.sqlite import SqliteDepot
from cacheupdater.cli import main
from cacheupdater.core.lanes import partition_of_lane
from cacheupdater.depot_ports import Progress

_TOLD = Path(os.environ["LATE_FILE"])  # noqa: TID251  how the test tells its child

epochs: dict[int, int] = {}
read_up_to: dict[int, int] = {}


def told():
    """Once."""
    there = _TOLD.exists()
    _TOLD.unlink(missing_ok=True)
    return there


def answer(*numbers):
    draft = _TOLD.with_suffix(".draft")
    draft.write_text(json.dumps(numbers))
    draft.rename(_TOLD.with_suffix(".answer"))


def comes_late(depot):
    claim, release, read, renew = depot.claim, depot.release, depot.read, depot.renew

    async def claiming(self, member, partitions):
        gained = await claim(self, member, partitions)
        epochs.update({each.partition: each.epoch for each in gained})
        read_up_to.update({each.partition: each.offset for each in gained})
        read_up_to.update({~each.partition: each.urgent for each in gained if each.urgent})
        return gained

    async def releasing(self, member, released):
        await release(self, member, released)
        for partition in released:
            epochs.pop(partition, None)

    async def reading(self, after, limit):
        found = await read(self, after, limit)
        read_up_to.update({lane: messages[-1].offset + 1 for lane, messages in found.items()})
        return found

    async def renewing(self, member, session):
        if told():
            lanes = [lane for each in epochs for lane in (each, ~each) if lane in read_up_to]
            late = {
                lane: Progress(epochs[partition_of_lane(lane)], read_up_to[lane], read_up_to[lane], [])
                for lane in lanes
            }
            refused = await self.commit(member, late)
            answer(len(late), len(refused))
        return await renew(self, member, session)

    depot.claim, depot.release, depot.read, depot.renew = claiming, releasing, reading, renewing


if __name__ == "__main__":
    for each in (RedisDepot, PostgresDepot, SqliteDepot):
        comes_late(each)
    sys.exit(main())
