"""Whoever changes the rows: one at a time, at random moments, each remembered once it is committed.

One process, started by `lane`. It tells nobody.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import asyncpg
import numpy as np

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from freshness_live.traffic import Traffic

CHANGE = "UPDATE items SET version = version + 1 WHERE id = $1 RETURNING version"


def write(traffic: Traffic, database: str, file: Path, gate: Barrier) -> None:
    """The process. Saves a row per change: when it was surely committed, its key, its version."""
    draw = np.random.default_rng((traffic.seed, 4))
    rates = traffic.change_rates()
    times = np.sort(draw.random(draw.poisson(traffic.changes * traffic.seconds)) * traffic.seconds)
    keys = draw.choice(traffic.keys, size=len(times), p=rates / rates.sum())
    done = asyncio.run(_write(database, gate, times.tolist(), keys.tolist()))
    np.savez(
        file,
        times=np.array([at for at, _ in done]),
        keys=keys[: len(done)],
        versions=np.array([version for _, version in done], np.int64),
    )


async def _write(
    database: str, gate: Barrier, times: list[float], keys: list[int]
) -> list[tuple[float, int]]:
    connection = await asyncpg.connect(database.replace("+asyncpg", ""))
    try:
        change = await connection.prepare(CHANGE)
        gate.wait()  # we are ready
        gate.wait()  # so is the cache
        start, done = time.monotonic(), []
        for due, key in zip(times, keys, strict=True):
            await asyncio.sleep(start + due - time.monotonic())
            version = await change.fetchval(key)
            done.append((time.monotonic(), version))
        return done
    finally:
        await connection.close()
