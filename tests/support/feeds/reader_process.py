"""A process that reads a replication feed, for tests that kill it: `python -m feeds.reader_process URL SLOT`.

It confirms each batch, and prints one line of JSON for each, after one when it waits and one when it reads: how many changes, the keys if they are few, what was emptied, the
time by the system's clock, and the memory that the process has taken at the most, in KiB.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

from cacheupdater.adapters.feed_replication import ReplicationFeed, Settings
from cacheupdater.feed_ports import Watched

FEW = 20


async def main(url, slot):
    feed = ReplicationFeed(Settings(url, "cacheupdater", slot, (Watched("items", ("id", "shelf")),)))
    say({"waits": now()})
    await feed.start()
    say({"started": now()})
    async for batch in feed.batches():
        await feed.confirm(batch.position)
        ids = [change.rows[-1]["id"] for change in batch.changes] if len(batch.changes) <= FEW else []
        say({"changes": len(batch.changes), "ids": ids, "emptied": list(batch.emptied), "at": now()})


def now():
    return time.clock_gettime(time.CLOCK_REALTIME)  # the clock that all processes have


def say(line):
    line["kib"] = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
