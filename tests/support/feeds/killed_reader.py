"""A reader of a feed in a process of its own, to be killed: prints `started`, then a line per batch, and confirms all of them.

`python killed_reader.py notify URL` or `python killed_reader.py poll URL REDIS_URL` reads the table `items (id, shelf)`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cacheupdater import redis_record


async def read(feed):
    await feed.start()
    print("started", flush=True)
    async for batch in feed.batches():
        print(*(row["id"] for change in batch.changes for row in change.rows), flush=True)
        await feed.confirm(batch.position)


async def main(kind, *urls):
    if kind == "notify":
        from feeds.notify_world import NotifyWorld as World
    else:
        from feeds.poll_world import PollWorld as World

        # the fixture `patient` does the same in the test's own process
        redis_record.CALL_TIMEOUT_S = redis_record.CONNECT_TIMEOUT_S = 5.0
    await read(World(*urls).feed())


async def started(kind, *urls):
    """A process that has its turn, as `asyncio.subprocess` has it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, kind, *urls, stdout=asyncio.subprocess.PIPE
    )
    assert await process.stdout.readline() == b"started\n"
    return process


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    asyncio.run(main(*sys.argv[1:]))
