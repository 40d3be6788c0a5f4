"""Queues of any kind as a test fills and reads them: hints go in as a collector's do, and what has come is read back."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

from suite.pace import PATIENCE_S

from cacheupdater.adapters.depot_redis import RedisDepot
from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.collector.links import made_link
from cacheupdater.config.queues import StreamsQueueConfig, producer_url, queue_of
from cacheupdater.core.lanes import partition_of_lane
from cacheupdater.pipeline.notices import Notices
from cacheupdater.testing.recording_observer import RecordingObserver
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol.wire import decode_pack

READ_PACKS = 100_000  # more than a test puts


class Sender:
    """Sends to one queue, given by its URL as updaters write it."""

    def __init__(self, url):
        self._link = made_link(producer_url(queue_of(url, None)))
        self._outbox = Outbox(curious=True)
        self._outbox.last_call = True
        self._turn_until(lambda: self._link.connected, 0)

    def send(self, kind, keys, ms):
        """Returns once the queue has all of them, in packs that are as old as `ms` says."""
        self._outbox.add(kind, dict.fromkeys(keys, 1))
        self._turn_until(lambda: not self._outbox, ms)

    def _turn_until(self, condition, now_ms):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self._link.trouble
            self._link.turn(self._outbox, time.monotonic(), now_ms)
            time.sleep(0.002)

    def close(self):
        self._link.close()


@asynccontextmanager
async def _depot(url):
    config = queue_of(url, None)
    if isinstance(config, StreamsQueueConfig):
        depot = RedisDepot(config.address, observer=RecordingObserver(), notices=Notices(time.monotonic))
    else:
        depot = depot_at(config.address)
    try:
        yield depot, await depot.open()
    finally:
        await depot.close()


def packs_in(url):
    """All packs that lie in a depot that nobody has read: (partition, pack)."""

    async def read():
        async with _depot(url) as (depot, _):
            found = await depot.read({each.lane: 1 for each in await depot.lag()}, READ_PACKS)
        return [
            (partition_of_lane(lane), decode_pack(each.payload)) for lane in found for each in found[lane]
        ]

    return asyncio.run(read())


def left_in(url):
    """Packs of a depot that are not finished. Its members must have left."""

    async def read():
        async with _depot(url) as (depot, _):
            lags = await depot.lag()
            assert not any(each.owner for each in lags), "a member is still there"
            found = await depot.read({each.lane: each.done for each in lags}, READ_PACKS)
        return sum(map(len, found.values()))

    return asyncio.run(read())


def make(url):
    """Makes the depot as its first updater would."""

    async def opened():
        async with _depot(url):
            pass

    asyncio.run(opened())
