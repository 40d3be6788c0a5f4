"""One updater's part of a queue on a depot, as a process: it takes packs, writes their keys down, and commits.

    python member.py URL SESSION

Each line on its output is one fact: `gained PARTITION TIME`, `done KEY...`, `trouble EVENT`, `lost REASON`. Times are monotonic. SIGTERM ends it
as an updater ends: it leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.adapters.queue_depot import DepotQueue
from cacheupdater.core import depot_url
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.protocol import streams
from cacheupdater_client.protocol.wire import decode_pack


def say(*words):
    print(*words, flush=True)


class Saying(RecordingObserver):
    """Says which troubles come, and which losses are counted."""

    def trouble(self, event, subject, text):
        say("trouble", event)

    def over(self, event, subject):
        """Nobody asks."""

    def count(self, metric, amount, *, label="", reason=""):
        if metric == "lost_packs":
            say("lost", reason)


async def work(queue, gained):
    while True:
        messages = await queue.fetch(gained.partition, 100)
        if not messages:
            return
        say("done", *(key.decode() for each in messages for key in decode_pack(each.payload).keys))
        with contextlib.suppress(CacheUpdaterError):  # the next commit says it again
            await queue.commit(gained.partition, epoch=gained.epoch, done=messages[-1].offset + 1)


async def take_part(queue):
    await queue.start()
    working = {}
    async for change in queue.assignments():
        for partition in change.lost:
            working.pop(partition).cancel()
        change.settled()
        for gained in change.gained:
            say("gained", gained.partition, time.monotonic())
            working[gained.partition] = asyncio.ensure_future(work(queue, gained))


async def main(url, session):
    saying = Saying()
    if "stream=" in url:
        depot = RedisDepot(streams.parse(url), observer=saying, notices=saying)
    else:
        depot = depot_at(depot_url.parse(url))
    queue = DepotQueue(depot, session=float(session), observer=saying, notices=saying)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    working = asyncio.ensure_future(take_part(queue))
    await ended.wait()
    await queue.close()
    await working


asyncio.run(main(*sys.argv[1:]))
