"""The process that changes rows: one at a time, at random moments. It records each change once it is committed.

`lane` starts it. It announces no changes.
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
    """The writer's process. Saves a row per change: a time at which it was certainly committed, its key, its version."""
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
