"""The database: rows with every version that they ever had, so that a read can be asked what it should have seen.

A load sees the snapshot of one moment: when its statement begins, or `lag` earlier if it reads a replica. `SimLoader`
is one updater's `ports.Loader` for one namespace.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from math import inf

from cacheupdater.errors import Faulty, TimedOut, Unavailable
from simulated.history import RowCommit

STATEMENT_S = 0.25  # the deadline of a statement, in the scale of these schedules
SLOW_S = (0.02, 0.24)


class Database:
    """Rows by the key that they are cached under; a version is a number that no other value has."""

    def __init__(self, world):
        self._world = world
        self._versions = 0
        self.down = False
        self.poison = None  # the key whose rows make a statement fail

    def commit(self, key, *, absent=False):
        """One more version of a row, or its end."""
        self._versions += 1
        seen = self._world.seen
        row = RowCommit(seen.clock(), None if absent else self._versions)
        seen.rows[key].append(row)
        seen.note("database", key, "=", row.version)
        return row

    def version_at(self, key, at):
        """What a snapshot of this moment shows."""
        commits = self._world.seen.rows[key]
        number = bisect_right(commits, at, key=lambda commit: commit.at)
        return commits[number - 1].version if number else None


def superseded_at(commits, version):
    """When this version was no longer the row's; inf if it still is."""
    for number, commit in enumerate(commits):
        if commit.version == version:
            return commits[number + 1].at if number + 1 < len(commits) else inf
    raise AssertionError(f"version {version} never was this row's")


class SimLoader:
    """As slow and as unreliable as the schedule wants."""

    def __init__(self, database, process, world, *, prefix):
        self._database = database
        self._process = process
        self._world = world
        self._prefix = prefix

    async def load(self, keys):
        self._process.check()
        world, seen = self._world, self._world.seen
        flight = seen.flight()
        flight.keys = tuple(b"%s%d" % (self._prefix, number) for (number,) in keys)
        seen.note(self._process.name, "loads", *flight.keys)
        try:
            await self._fail_before(flight)
            flight.read_at = seen.clock()
            snapshot = flight.read_at - world.plan.lag
            flight.found = {key: self._database.version_at(key, snapshot) for key in flight.keys}
            await self._wait(after=True)
        except BaseException:
            flight.ended = seen.clock()
            raise
        self._process.check()
        found = zip(keys, flight.found.values(), strict=True)
        return {key: version for key, version in found if version is not None}

    async def _fail_before(self, flight):
        world, faults = self._world, self._world.faults
        await self._wait(after=False)
        if self._database.down or faults("db_error"):
            raise Unavailable("the database cannot be reached")
        if faults("db_timeout"):
            await asyncio.sleep(STATEMENT_S)
            raise TimedOut("the statement took too long")
        if faults("db_faulty"):
            raise Faulty("the statement failed")
        if faults("db_raises"):
            raise RuntimeError("a loader raised")
        if self._database.poison in flight.keys and faults("db_poison"):
            raise Faulty("one row cannot be read")
        if self._database.poison in flight.keys and faults("db_slow_row"):
            await asyncio.sleep(STATEMENT_S)
            raise TimedOut("one row takes too long")
        if faults("db_slow"):
            await asyncio.sleep(world.plan.limits.head_timeout * world.random.uniform(0.3, 2.0))

    async def _wait(self, *, after):
        world = self._world
        if after and world.faults("db_slow"):
            await asyncio.sleep(world.plan.limits.head_timeout * world.random.uniform(0.3, 2.0))
        await asyncio.sleep(world.slow(SLOW_S) if world.faults("db_delay") else world.latency())

    async def close(self):
        """Nothing is open."""
