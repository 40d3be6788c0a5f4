"""What was learned survives a restart: read at the start, saved every minute and at the drained end.

`price.shell.pricing` makes one if the configuration names a file. `price.memory` says what the file holds; this module says
when it is read and written. The event loop does not wait for it: the loop only copies, a thread does the rest. Nothing that
goes wrong with a file stops anything: without it, everything is learned again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cacheupdater.errors import CacheUpdaterError
from cacheupdater.price import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cacheupdater.core.budget import Source
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import State
    from cacheupdater.price import Market, Price

log = logging.getLogger(__name__)

SAVE_EVERY = 60.0  # seconds: what a crash can lose; a million keys are 60 MB of writing


class Remembering:
    """The memory of one process."""

    def __init__(
        self,
        state: State,
        markets: Mapping[Source, Market],
        *,
        most: int,
        wall: Callable[[], float],
        notices: Notices,
    ) -> None:
        """At most `most` keys are kept. `wall` is the time of day, the only clock that runs while we are down."""
        self._state = state
        self._markets = markets
        self._most = most
        self._wall = wall
        self._parts: dict[int, memory.Learned] = {}  # of partitions that were not gained yet
        self._absent = 0.0
        self._notices = notices

    async def begin(self, partitions: int) -> None:
        """Reads the file. Called before the first partition is gained."""
        clock = asyncio.get_running_loop().time
        try:
            found = await asyncio.to_thread(self._read, partitions)
        except CacheUpdaterError as e:
            await self._set_aside(e)
            return
        if found is not None:
            told, parts = found
            self._parts = dict(enumerate(parts))
            self._absent = told.absent - clock()
            memory.restore_prices(self._markets, told.prices)
            log.info("learned state of %d keys, %.0f s old", len(told.learned.keys), told.absent)

    def follow(self, markets: Mapping[Source, Market]) -> None:
        """These markets follow those of the configuration before; the policies go over by themselves."""
        self._markets = markets

    def restore(self, policy: Price, keyspace: Keyspace[Namespace], partition: int, now: float) -> None:
        """For a partition that was just gained."""
        part = self._parts.pop(partition, None)
        if part is not None:
            absent = max(0.0, self._absent + now)
            left_out = memory.restore(policy, keyspace, part, moment=memory.Moment(now, absent))
            if left_out:
                what = "partition %d: %d learned keys are forgotten: they belong to no priced namespace now, or there is no room"
                log.warning(what, partition, left_out)

    async def run(self, policies: Mapping[int, Price]) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(SAVE_EVERY)
            await self.save(policies)

    async def save(self, policies: Mapping[int, Price]) -> None:
        """Saves what the policies know by now, chunk after chunk, so that the event loop runs other tasks in between."""
        if not policies:
            return
        clock = asyncio.get_running_loop().time
        parts = []
        for policy in list(policies.values()):
            for begin in range(0, policy.table.high, memory.CHUNK):
                copied = memory.copy(policy, begin, now=clock())
                parts.append(await asyncio.to_thread(memory.learned, copied))
        prices = memory.prices_of(self._markets)
        try:
            await asyncio.to_thread(self._write, parts, prices)
        except CacheUpdaterError as e:
            text = f"what was learned cannot be saved, next try in {SAVE_EVERY:g} s: {e}"
            self._notices.trouble("state_not_saved", "", text)
        else:
            self._notices.over("state_not_saved", "")

    def _read(self, partitions: int) -> tuple[memory.Told, list[memory.Learned]] | None:
        data = self._state.read()
        if data is None:
            return None
        told = memory.read(data, wall=self._wall())
        return told, told.learned.split(partitions)

    def _write(self, parts: list[memory.Learned], prices: Mapping[str, tuple[float, bool]]) -> None:
        self._state.write(memory.file_of(parts, prices, most=self._most, wall=self._wall()))

    async def _set_aside(self, reason: CacheUpdaterError) -> None:
        """One line: why, and what follows."""
        try:
            place = await asyncio.to_thread(self._state.set_aside)
        except CacheUpdaterError as e:
            place = f"where it is ({e})"
        what = "the file of learned state is ignored, everything is learned anew: %s; it is kept as %s"
        log.warning(what, reason, place)
