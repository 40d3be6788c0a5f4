"""The ports `Depot` and `Waiting` in a file of SQLite: packs and ownership are rows of four tables, for the processes of one machine.

`depot_at` makes one `SqliteDepot` per process; a queue calls it. `sqlite_statements` has the statements, `sqlite_file` the file and
the thread, `failures` the meaning of errors.

SQLite lets one process write at a time, so a transaction of ours sees all earlier ones, and positions come to be seen in their
order. Packs are on the disk when a put returns. Renewals, claims and commits survive the death of any process, but a loss of power
may undo the last of them: then no owner is left, and some packs are read again.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from cacheupdater.adapters.depot_sql import checks
from cacheupdater.adapters.depot_sql import sqlite_statements as sql
from cacheupdater.adapters.depot_sql.sqlite_file import DatabaseFile
from cacheupdater.core.depot_url import PARTITIONS
from cacheupdater.core.lanes import is_urgent_lane, lane_of, partition_of_lane, urgent_of
from cacheupdater.core.membership import Roster
from cacheupdater.depot_ports import Claimed, Lag
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.ports import Message

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from cacheupdater.core.depot_url import Address
    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Progress

# Seconds between two looks at the number of puts. A process learns nothing of another's commits in SQLite unless it looks. A look
# takes some 50 us of this process; a pack waits for half of this time on average.
POLL_S = 0.02
AWAY_S = 0.2  # seconds of rest if a look fails


class SqliteDepot:
    """The file of one address, as one process uses it."""

    def __init__(self, address: Address) -> None:
        """Raises Misconfigured if this Python's SQLite is too old."""
        self._address = address
        self._file = DatabaseFile(address.path)
        self._partitions = 0
        self._heard = -1  # the number of puts when the last wait ended

    async def open(self) -> int:
        """Makes the tables if there are none."""
        self._partitions = await self._file.write(self._made, on_disk=True)
        return self._partitions

    def _made(self, connection: sqlite3.Connection) -> int:
        if not _one(connection, sql.TABLES):
            for each in sql.CREATE:
                connection.execute(each)
            count = self._address.partitions or PARTITIONS
            connection.executemany(sql.ADD_PARTITION, [(number,) for number in range(count)])
        connection.execute(sql.FORGET)
        return self._found(connection)

    def _found(self, connection: sqlite3.Connection) -> int:
        version = _one(connection, "PRAGMA user_version")
        there = _one(connection, sql.PARTITIONS) if version == checks.VERSION else 0
        return checks.number_of_partitions(self._address, there, version)

    # --- who owns what --------------------------------------------------------------------------------

    async def renew(self, member: str, session: float) -> Roster:
        """As the port says."""

        def work(connection: sqlite3.Connection) -> tuple[list[tuple[str]], list[tuple[str, str]]]:
            connection.execute(sql.RENEW, (member, session))
            return connection.execute(sql.LIVING).fetchall(), connection.execute(sql.OWNERS).fetchall()

        living, owners = await self._file.write(work)
        members = frozenset([member, *(name for (name,) in living)])
        return Roster(members, {partition: name for name, owned in owners for partition in json.loads(owned)})

    async def claim(self, member: str, partitions: Sequence[int]) -> Sequence[Claimed]:
        """As the port says."""
        said = {"me": member, "partitions": json.dumps(list(partitions))}
        rows = await self._file.write(lambda connection: connection.execute(sql.CLAIM, said).fetchall())
        return [Claimed(*row) for row in rows]

    async def release(self, member: str, epochs: Mapping[int, int]) -> None:
        """As the port says."""
        rows = [(member, partition, epoch) for partition, epoch in epochs.items()]
        await self._file.write(lambda connection: connection.executemany(sql.RELEASE, rows))

    async def leave(self, member: str) -> None:
        """As the port says."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(sql.END, (member,))
            connection.execute(sql.LEAVE, (member,))

        await self._file.write(work)

    # --- packs ----------------------------------------------------------------------------------------

    async def read(self, after: Mapping[Lane, int], limit: int) -> Mapping[Lane, Sequence[Message]]:
        """As the port says. One statement says which lanes have packs, and only these are read."""

        def work(connection: sqlite3.Connection) -> dict[Lane, list[Message]]:
            lasts = connection.execute(sql.LASTS).fetchall()
            news = [
                (lane, after[lane], limit)
                for partition, last, urgent_last in lasts
                for lane, end in ((urgent_of(partition), urgent_last), (partition, last))
                if lane in after and end >= after[lane]
            ]
            found = {each[0]: connection.execute(sql.READ, each).fetchall() for each in news}
            return {lane: [Message(*row) for row in rows] for lane, rows in found.items() if rows}

        return await self._file.read(work) if after else {}

    async def commit(self, member: str, progress: Mapping[Lane, Progress]) -> Collection[Lane]:
        """As the port says."""

        def work(connection: sqlite3.Connection) -> list[Lane]:
            refused, room = [], checks.DELETED_MAX
            for lane, each in progress.items():
                said = (each.scan, each.done, member, partition_of_lane(lane), each.epoch)
                row = connection.execute(sql.COMMIT[is_urgent_lane(lane)], said).fetchone()
                if row is None:
                    refused.append(lane)
                    continue
                connection.executemany(sql.FINISH, [(lane, at) for at in each.finished])
                if room:
                    room -= connection.execute(sql.SWEEP, (lane, *row, room)).rowcount
            return refused

        return await self._file.write(work) if progress else ()

    async def put(self, packs: Sequence[tuple[int, bytes]]) -> None:
        """As the port says."""
        if packs:
            await self._placed([(lane_of(partition, payload), payload) for partition, payload in packs])

    async def put_back(self, partition: int, packs: Sequence[bytes]) -> range:
        """As the port says."""
        return checks.offsets(await self._placed([(urgent_of(partition), each) for each in packs]))

    async def _placed(self, packs: checks.Laned) -> checks.Placed:
        counts = checks.counted(packs, self._partitions)

        def work(connection: sqlite3.Connection) -> checks.Placed:
            last: dict[Lane, int] = {}
            for partition, (touches, urgent) in counts.items():
                said = {"partition": partition, "touches": touches, "urgent": urgent}
                row = connection.execute(sql.ADVANCE, said).fetchone()
                last |= checks.lasts(partition, row, counts[partition], self._address.length)
            placed = checks.placed(packs, last)
            connection.executemany(sql.PUT, placed)
            connection.execute(sql.TELL)
            return placed

        return await self._file.write(work, on_disk=True)

    # --- waiting packs --------------------------------------------------------------------------------

    async def lag(self) -> Sequence[Lag]:
        """As the port says. A file that is not there is not made: it would be this user's and not the updaters'."""

        def work(connection: sqlite3.Connection) -> list[Lag]:
            if not _one(connection, sql.TABLES):
                return []
            self._found(connection)
            return [Lag(*row) for row in connection.execute(sql.LAG)]

        return await self._file.read(work) if self._file.exists() else ()

    async def drop(self, lane: Lane, end: int) -> None:
        """As the port says. Deletes in short transactions, between which others may write."""
        said = {"partition": partition_of_lane(lane), "end": end}
        statement = sql.DROP[is_urgent_lane(lane)]
        [done] = await self._file.write(
            lambda connection: connection.execute(statement, said).fetchone(), on_disk=True
        )
        sweep = (lane, done, checks.DELETED_MAX)
        deleted = checks.DELETED_MAX
        while deleted == checks.DELETED_MAX:
            deleted = await self._file.write(lambda connection: connection.execute(sql.SWEEP, sweep).rowcount)

    async def wait(self, seconds: float) -> None:
        """Looks at the number of puts every `POLL_S`. May return once without need after a read has found what came."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            try:
                puts = await self._file.read(lambda connection: _one(connection, sql.NEWS))
            except CacheUpdaterError:  # the next call tells
                await asyncio.sleep(min(seconds, AWAY_S))
                return
            left = until - loop.time()
            if puts != self._heard or left <= 0:
                self._heard = puts
                return
            await asyncio.sleep(min(POLL_S, left))

    async def close(self) -> None:
        """As the port says."""
        await self._file.close()


def _one(connection: sqlite3.Connection, statement: str) -> int:
    number: int = connection.execute(statement).fetchone()[0]
    return number
