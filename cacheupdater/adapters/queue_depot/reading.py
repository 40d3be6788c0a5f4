"""Reads the packs of all our partitions: one task, one call for many partitions, and no work for partitions without packs.

The queue makes one `Reading` and runs it as a task. It goes round the lanes that have room, and rests until the depot has news.
A partition whose inbox is full of touches is still read for urgent packs.
Between two rounds it rests for longer than a round takes, unless there is a backlog. So reading thousands of partitions never
takes all the time of the process or of the depot.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_depot.inbox import bytes_max
from cacheupdater.adapters.queue_depot.waiting import answered
from cacheupdater.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.adapters.queue_depot.inbox import Inbox
    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Depot
    from cacheupdater.ports import Message, Troubles

READ_LANES = 1000  # in one call; each may bring at least one pack, so this bounds its memory
READ_PACKS = 256  # of each kind of lanes in one call, if its partitions are fewer: 2.5 MB of usual packs, and 64 MiB of the largest
READ_WITHIN = 5.0  # seconds; a depot that takes longer counts as away
GATHER = 0.005  # seconds between two rounds at the least: the packs of a moment come with one call
RESTS = 4  # how many times as long as a round a rest is: so reading takes a fifth of the time at the most
REST = 1.0  # seconds until the next round if the depot has no news, in case some got lost
AGAIN = 0.5  # seconds until a failed round is tried again


class Reading:
    """The reader of one queue."""

    def __init__(self, depot: Depot, notices: Troubles) -> None:
        self._depot = depot
        self._notices = notices
        self._wanting: dict[Lane, Inbox] = {}  # that have room
        self._hungry = asyncio.Event()  # the depot has news, or a lane has come to have room
        self._waiting: asyncio.Future[None] | None = None
        self._most = bytes_max(0)

    def add(self, inbox: Inbox) -> None:
        """Read for this inbox from now on, until it leaves."""
        self._wanting |= dict.fromkeys(inbox.lanes, inbox)
        self._hungry.set()

    def share(self, lanes: int) -> None:
        """So many lanes are ours, and share the memory."""
        self._most = bytes_max(lanes)

    def eased(self, inbox: Inbox) -> None:
        """Some packs of this inbox were fetched."""
        for lane, each in inbox.lanes.items():
            if lane not in self._wanting and not each.full(self._most):
                self._wanting[lane] = inbox
                self._hungry.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                began = clock()
                try:
                    more = await self._round()
                    self._notices.over("fetch_failed", "")
                except Unavailable as e:
                    self._notices.trouble("fetch_failed", "", f"no pack can be read, tried again: {e}")
                    await asyncio.sleep(AGAIN)
                    continue
                if more:
                    await asyncio.sleep(0)  # the partitions must have their turn too
                else:
                    await asyncio.sleep(GATHER + RESTS * (clock() - began))
                    await self._rest()
        finally:
            if self._waiting is not None:
                self._waiting.cancel()

    async def _round(self) -> bool:
        """Read once for each lane that has room. Whether there is more to read at once."""
        more, places = False, iter([*self._wanting.items()])
        self._hungry.clear()
        while part := dict(islice(places, READ_LANES)):
            limit = max(1, READ_PACKS // len({*part.values()}))
            after = {lane: inbox.lanes[lane].next for lane, inbox in part.items() if self._reads(lane, inbox)}
            if after:
                got = await answered(self._depot.read(after, limit), READ_WITHIN)
                more |= self._deliver(part, got, limit)
        return more

    def _reads(self, lane: Lane, inbox: Inbox) -> bool:
        """Whether this lane still wants packs. One that is handed over is forgotten here."""
        if inbox.leaving and self._wanting.get(lane) is inbox:
            del self._wanting[lane]
        return self._wanting.get(lane) is inbox

    def _deliver(self, part: Mapping[Lane, Inbox], got: Mapping[Lane, Sequence[Message]], limit: int) -> bool:
        more = False
        for lane, messages in got.items():
            inbox = part[lane]
            if not messages or not self._reads(lane, inbox):
                continue  # the next owner reads them
            inbox.put(lane, messages)
            if inbox.lanes[lane].full(self._most):
                del self._wanting[lane]
            else:
                more |= len(messages) >= limit
        return more

    async def _rest(self) -> None:
        """Until the depot has news, or a lane has room."""
        if self._waiting is not None and self._waiting.done():
            waited, self._waiting = self._waiting, None
            waited.result()
        if self._waiting is None and self._wanting:
            self._waiting = asyncio.ensure_future(self._depot.wait(REST))
            self._waiting.add_done_callback(lambda _: self._hungry.set())
        await self._hungry.wait()
