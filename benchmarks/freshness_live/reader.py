"""An application that reads: MGETs at a steady pace, each read recorded with its time and version.

Each reader is a process, started by `lane`, with the real client. With a `ttl` it is the application of the TTL lane: it loads
missing values from the database while its user waits, and no updater keeps the cache fresh.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
import numpy as np

import cacheupdater_client
from freshness_live.servers import LOAD, NAME
from freshness_live.traffic import AT_ONCE, Traffic

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

ABSENT = -1
_DRAWN = 1_000  # MGETs whose keys are drawn at once


@dataclass(frozen=True)
class Reading:
    """The arguments of one reader."""

    traffic: Traffic
    number: int
    cache: str
    emit: str | None
    database: str
    ttl: float | None  # seconds; None: an updater keeps the values fresh


class Reads(NamedTuple):
    """The records of a reader, one row per MGET."""

    began: np.ndarray  # monotonic seconds
    took: np.ndarray  # seconds, loads included
    keys: np.ndarray
    versions: np.ndarray  # ABSENT where Redis had none

    @classmethod
    def load(cls, files: list[Path]) -> Reads:
        """The records of all readers, in no order."""
        parts = [np.load(file) for file in files]
        return cls(*(np.concatenate([part[name] for part in parts]) for name in cls._fields))


def read(reading: Reading, file: Path, gate: Barrier) -> None:
    """The reader's process."""
    traffic = reading.traffic
    pause = AT_ONCE * traffic.readers / traffic.reads
    size = int(traffic.seconds / pause) + 1
    began, took = np.zeros(size), np.zeros(size, np.float32)
    keys = _drawn(reading, size)
    versions = np.zeros((size, AT_ONCE), np.int32)
    with cacheupdater_client.Redis.from_url(reading.cache, emit=reading.emit) as client:
        get = _Aside(client, reading).get if reading.ttl else client.mget
        client.ping()
        gate.wait()  # we are ready
        gate.wait()  # so is the cache
        start = time.monotonic() + pause * reading.number / traffic.readers
        for turn in range(size):
            names = [NAME.format(key) for key in keys[turn].tolist()]
            wait = start + turn * pause - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            at = time.monotonic()
            if at > start + traffic.seconds:
                size = turn
                break
            values = get(names)
            took[turn], began[turn] = time.monotonic() - at, at
            versions[turn] = [ABSENT if value is None else int(value) for value in values]
    np.savez(file, began=began[:size], took=took[:size], keys=keys[:size], versions=versions[:size])


def _drawn(reading: Reading, size: int) -> np.ndarray:
    draw = np.random.default_rng((reading.traffic.seed, 3, reading.number))
    ends = np.cumsum(reading.traffic.read_shares())
    keys = np.empty((size, AT_ONCE), np.int32)
    for first in range(0, size, _DRAWN):
        part = keys[first : first + _DRAWN]
        part[:] = np.minimum(np.searchsorted(ends, draw.random(part.shape)), len(ends) - 1)
    return keys


class _Aside:
    """Cache-aside: loads missing values and sets them with the TTL."""

    def __init__(self, client: cacheupdater_client.Redis, reading: Reading) -> None:
        assert reading.ttl
        self._client = client
        self._life = int(reading.ttl * 1000)
        self._runner = asyncio.Runner()
        self._database = self._runner.run(asyncpg.connect(reading.database.replace("+asyncpg", "")))

    def get(self, names: list[str]) -> list[bytes | int | None]:
        values = self._client.mget(names)
        missing = {name for name, value in zip(names, values, strict=True) if value is None}
        if not missing:
            return values
        ids = [int(name.rpartition(":")[2]) for name in missing]
        loaded = {NAME.format(key): version for key, version in self._runner.run(self._load(ids))}
        pipe = self._client.pipeline(transaction=False)
        for name, version in loaded.items():
            pipe.set(name, version, px=self._life)
        pipe.execute()
        return [
            loaded.get(name) if value is None else value for name, value in zip(names, values, strict=True)
        ]

    async def _load(self, ids: list[int]) -> list[asyncpg.Record]:
        return await self._database.fetch(LOAD, ids)
