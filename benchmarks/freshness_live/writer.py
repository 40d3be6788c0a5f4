"""The process that changes rows: one at a time, at random moments. It records each change once it is committed.

`lane` starts it. It announces no changes, unless the lane is one where it does.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
import numpy as np

from cacheupdater_client import Redis

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from freshness_live.traffic import Traffic

CHANGE = "UPDATE items SET version = version + 1 WHERE id = $1 RETURNING version"


class Writing(NamedTuple):
    """What the writer needs to know."""

    traffic: Traffic
    database: str
    announced: (
        tuple[str, str | None] | None
    )  # the cache, and where hints go, if it calls `invalidate` after each change


def write(writing: Writing, file: Path, gate: Barrier) -> None:
    """The writer's process. Saves a row per change: a time at which it was certainly committed, its key, its version."""
    traffic, database, announced = writing
    draw = np.random.default_rng((traffic.seed, 4))
    rates = traffic.change_rates()
    times = np.sort(draw.random(draw.poisson(traffic.changes * traffic.seconds)) * traffic.seconds)
    keys = draw.choice(traffic.keys, size=len(times), p=rates / rates.sum())
    cache = Redis.from_url(announced[0], emit=announced[1]) if announced else None
    done = asyncio.run(_write(database, gate, list(zip(times.tolist(), keys.tolist(), strict=True)), cache))
    np.savez(
        file,
        times=np.array([at for at, _ in done]),
        keys=keys[: len(done)],
        versions=np.array([version for _, version in done], np.int64),
    )


async def _write(
    database: str, gate: Barrier, plan: list[tuple[float, int]], cache: Redis | None
) -> list[tuple[float, int]]:
    connection = await asyncpg.connect(database.replace("+asyncpg", ""))
    try:
        change = await connection.prepare(CHANGE)
        gate.wait()  # we are ready
        gate.wait()  # so is the cache
        start, done = time.monotonic(), []
        for due, key in plan:
            await asyncio.sleep(start + due - time.monotonic())
            version = await change.fetchval(key)
            done.append((time.monotonic(), version))
            if cache is not None:
                cache.invalidate(f"item:{key}")
        return done
    finally:
        await connection.close()
