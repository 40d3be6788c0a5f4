"""A fleet's record in the simulated Redis, and one updater's door to it.

The record is a `MemoryRecords`, which the contract tests compare with the real script. `cache` carries the calls, with their
faults. The fleet's times are a twentieth of the real ones, as `hurried` sets them.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from itertools import count

from cacheupdater.core import shares
from cacheupdater.errors import Unavailable
from cacheupdater.price.shell import sharing
from cacheupdater.testing import memory_fleet
from simulated.lost import Lost

SCALE = 20.0
CALL_S = 0.05  # twice what the scale gives: calls take as long as others here
TIMES = (
    "EXCHANGE_EVERY",
    "ASK_AGAIN",
    "ASK_NEXT",
    "WAITING",
    "TURN_LEAST",
    "CLAIM_LIFE",
    "CLAIM_MARGIN",
    "YOUTH",
)


@contextmanager
def hurried():
    """Sets the times of sharing and of the record."""
    places = [(module, name) for module in (sharing, memory_fleet) for name in TIMES if hasattr(module, name)]
    try:
        for module, name in places:
            setattr(module, name, getattr(shares, name) / SCALE)
        yield
    finally:
        for module, name in places:
            setattr(module, name, getattr(shares, name))


class SimFleet:
    """`ports.Fleet` of one updater process."""

    def __init__(self, cache, process):
        self.cut_off = False
        self._cache = cache
        self._process = process
        self._numbers = count(1)

    async def exchange(self, source, offer):
        records, number = self._cache.records, next(self._numbers)
        grant = await self._call(lambda: records.exchange(source, self, offer, number))
        if grant is None:
            raise Unavailable("a newer call of this updater came first")
        return grant

    async def leave(self, source):
        await self._call(lambda: self._cache.records.leave(source, self))

    async def _call(self, effect):
        self._process.check()
        if self.cut_off:
            await asyncio.sleep(CALL_S)
            raise Unavailable("Redis did not answer")
        try:
            answer = await self._cache.call(effect, kind="fleet", patience=CALL_S)
        except Lost as e:
            raise Unavailable(str(e)) from e
        self._process.check()
        return answer

    async def close(self):
        """Leaves claims as they are."""
