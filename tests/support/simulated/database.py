"""The database: rows with every version that they ever had, so that checkers know what a read should have seen.

A load sees the snapshot of one moment: when its statement begins, or `lag` earlier if it reads a replica. `SimLoader` is one
updater's `ports.Loader` for one namespace. It makes the result of a statement; the real `Matching` assigns rows to keys. In the
namespace a each key has one row; in b each key has two, as with `rows: many`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from math import inf

from cacheupdater.adapters.loader_sql.matching import Matching
from cacheupdater.errors import Faulty, TimedOut, Unavailable
from simulated.history import RowCommit

STATEMENT_S = 0.25  # the deadline of a statement, in the scale of these schedules
SLOW_S = (0.02, 0.24)
STALL_S = 0.01
STAMPS = {"": None, "version": ("version", "version"), "age": ("changed", "age")}
HALVES = 2  # rows of a key of b
TORN = 0  # a version that no row ever has


class Database:
    """Rows by the key of their cached value. A version is a number that no other value has."""

    def __init__(self, world):
        self._world = world
        self._versions = 0
        self.down = False
        self.stalled = False  # whether answers wait
        self.poison = None  # the key whose rows make a statement fail
        self.turned = False  # whether the table's columns are in the other order

    def commit(self, key, *, absent=False):
        """Commits one more version of a row, or its deletion. If there is a log, the log tells of it."""
        row = self.write(key, absent=absent)
        if self._world.fed is not None:
            self._world.fed.tell_rows([key])
        return row

    def write(self, key, *, absent=False):
        """A part of a commit that the caller tells of."""
        self._versions += 1
        seen = self._world.seen
        row = RowCommit(seen.clock(), None if absent else self._versions)
        seen.rows[key].append(row)
        seen.note("database", key, "=", row.version)
        return row

    def row_at(self, key, at):
        """The row in a snapshot of this moment: the last commit before it, if there is a row."""
        commits = self._world.seen.rows[key]
        number = bisect_right(commits, at, key=lambda commit: commit.at)
        return commits[number - 1] if number and commits[number - 1].version is not None else None


def is_of(commits, version):
    """Whether this version ever was the row's."""
    return any(commit.version == version for commit in commits)


def superseded_at(commits, version):
    """When another version replaced this one; inf if none has."""
    for number, commit in enumerate(commits):
        if commit.version == version:
            return commits[number + 1].at if number + 1 < len(commits) else inf
    raise AssertionError(f"version {version} never was this row's")


def body_of(value):
    """The cached value: the version, which all rows of a key share."""
    if isinstance(value, dict):
        return b"%d" % value["version"]
    versions = {row["version"] for row in value}
    return b"%d" % (versions.pop() if len(versions) == 1 and len(value) == HALVES else TORN)


class SimLoader:
    """As slow and as unreliable as the schedule wants."""

    def __init__(self, database, process, world, *, prefix):
        self._database = database
        self._process = process
        self._world = world
        self._prefix = prefix
        self._many = prefix == b"b:"
        stamp = None if self._many else STAMPS[world.plan.stamp]
        rows = "many" if self._many else "one"
        self.matching = Matching(("id",), ("version",), rows=rows, stamp=stamp)

    async def load(self, keys, leaves):
        self._process.check()
        leaves()
        world, seen = self._world, self._world.seen
        flight = seen.flight()
        flight.left, flight.lost = seen.clock(), world.is_deceived(self._process)
        flight.keys = tuple(b"%s%d" % (self._prefix, number) for (number,) in keys)
        seen.note(self._process.name, "loads", *flight.keys)
        try:
            await self._fail_before(flight)
            asked = flight.read_at = seen.clock()
            found = {key: self._database.row_at(key, asked - world.plan.lag) for key in flight.keys}
            flight.found = {key: row and row.version for key, row in found.items()}
            result = self._result(keys, found.values())
            await self._wait(after=True)
            self._process.check()
            return self.matching.match(keys, keys, result, asked=asked)
        except BaseException:
            flight.ended = seen.clock()
            raise

    def _result(self, keys, found):
        """The result as a driver returns it: in any order, and with faults."""
        faults, random = self._world.faults, self._world.random
        rows = [(number, row) for (number,), row in zip(keys, found, strict=True) if row is not None]
        if self._many:
            rows *= HALVES
        elif rows and faults("db_row_twice"):
            rows.append(rows[0])
        if rows and faults("db_row_of_nobody"):
            rows.append((-1, rows[0][1]))
        if len(rows) > 1:
            random.shuffle(rows)
        if faults("db_columns_turned"):
            self._database.turned = not self._database.turned
        names = ("id", "version", "changed")
        rows = [(number, row.version, row.at) for number, row in rows]
        if self._database.turned:
            names, rows = names[::-1], [row[::-1] for row in rows]
        if faults("db_column_lost"):
            names = tuple(f"_{name}" for name in names)
        return names, rows

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
        while after and self._database.stalled:  # noqa: ASYNC110  it ends by the clock
            await asyncio.sleep(STALL_S)

    async def close(self):
        """Nothing is open."""
