"""The ports `Depot` and `Waiting` in a PostgreSQL: packs and ownership are rows of four tables, for updaters on any number of machines.

`depot_at` makes one `PostgresDepot` per process; a queue calls it. `postgres_statements` has the statements and the order of
locks, `postgres_server` the connections, `failures` the meaning of errors.

Each partition is one row: its owner and epoch, and for each lane the cursors and the position of the last pack. Commits and releases compare the
epoch in the same statement that changes the row. Sessions run by the server's clock. A put is acknowledged when the server has
committed it, so what it survives is what the server's own settings promise (`synchronous_commit`, replicas).

`wait` listens (LISTEN, NOTIFY), so waiting costs the server nothing. A pooler that hides notifications, such as PgBouncer between
transactions, costs up to the second after which the queue reads anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.adapters.depot_sql import checks
from cacheupdater.adapters.depot_sql.postgres_server import Bell, Server
from cacheupdater.adapters.depot_sql.postgres_statements import Statements
from cacheupdater.core.depot_url import PARTITIONS
from cacheupdater.core.lanes import is_urgent_lane, lane_of, partition_of_lane, urgent_of
from cacheupdater.core.membership import Roster
from cacheupdater.depot_ports import Claimed, Lag
from cacheupdater.errors import Misconfigured
from cacheupdater.ports import Message

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import asyncpg

    from cacheupdater.core.depot_url import Address
    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Progress


class PostgresDepot:
    """The tables of one address, as one process uses them."""

    def __init__(self, address: Address) -> None:
        """Raises Misconfigured if a file of certificates cannot be used."""
        self._address = address
        self._sql = Statements(address.table)
        self._server = Server(address)
        self._bell = Bell(self._server, self._sql.channel)
        self._partitions = 0

    async def open(self) -> int:
        """Makes the tables if there are none. Of several processes that start at once, one makes them."""
        sql = self._sql
        async with self._server.connection() as connection:
            # before the transaction: a transaction that has missed a table may not see the table that others make meanwhile
            await connection.execute("SELECT pg_advisory_lock(hashtext($1))", sql.about)
            await connection.execute("BEGIN")
            if await connection.fetchval("SELECT to_regclass($1)", sql.about) is None:
                await connection.execute(sql.create(self._address.partitions or PARTITIONS))
            said = await connection.fetchrow(sql.say)
            await connection.execute(sql.forget)
            await connection.execute("COMMIT")
            await connection.execute("SELECT pg_advisory_unlock(hashtext($1))", sql.about)
        self._partitions = self._found(said)
        return self._partitions

    def _found(self, said: asyncpg.Record | None) -> int:
        if said is None or said["version"] is None:
            raise Misconfigured(f"{self._address} are not complete: drop them, or choose another name")
        return checks.number_of_partitions(self._address, said["partitions"], said["version"])

    # --- who owns what --------------------------------------------------------------------------------

    async def renew(self, member: str, session: float) -> Roster:
        """As the port says, by one statement."""
        async with self._server.connection() as connection:
            rows = await connection.fetch(self._sql.renew, member, session)
        members = frozenset([member, *(name for name, owned in rows if owned is None)])
        return Roster(members, {partition: name for name, owned in rows for partition in owned or ()})

    async def claim(self, member: str, partitions: Sequence[int]) -> Sequence[Claimed]:
        """As the port says."""
        if not partitions:
            return ()
        wanted = sorted(partitions)
        async with self._server.transaction() as connection:
            await connection.execute(self._sql.lock, wanted)
            rows = await connection.fetch(self._sql.claim, member, wanted)
        return [Claimed(*row) for row in rows]

    async def release(self, member: str, epochs: Mapping[int, int]) -> None:
        """As the port says."""
        if not epochs:
            return
        async with self._server.transaction() as connection:
            await connection.execute(self._sql.lock, sorted(epochs))
            await connection.execute(self._sql.release, member, list(epochs), list(epochs.values()))

    async def leave(self, member: str) -> None:
        """As the port says."""
        async with self._server.transaction() as connection:
            await connection.execute(self._sql.end, member)
            await connection.execute(self._sql.lock_ours, member)
            await connection.execute(self._sql.leave, member)

    # --- packs ----------------------------------------------------------------------------------------

    async def read(self, after: Mapping[Lane, int], limit: int) -> Mapping[Lane, Sequence[Message]]:
        """As the port says."""
        if not after:
            return {}
        async with self._server.connection() as connection:
            rows = await connection.fetch(self._sql.read, list(after), list(after.values()), limit)
        found: dict[Lane, list[Message]] = {}
        for lane, position, payload in rows:
            found.setdefault(lane, []).append(Message(position, payload))
        for messages in found.values():
            messages.sort()  # a join keeps no order; what is sorted already costs nothing
        return found

    async def commit(self, member: str, progress: Mapping[Lane, Progress]) -> Collection[Lane]:
        """As the port says."""
        if not progress:
            return ()
        async with self._server.transaction() as connection:
            await connection.execute(self._sql.lock, sorted({partition_of_lane(lane) for lane in progress}))
            ours: dict[Lane, int] = {}
            for urgent, statement in enumerate(self._sql.commit):
                lanes = [lane for lane in progress if is_urgent_lane(lane) == urgent]
                if lanes:
                    said = [(lane, *progress[lane][:3]) for lane in lanes]
                    rows = await connection.fetch(statement, member, *map(list, zip(*said, strict=True)))
                    ours |= {lane: done for lane, done in rows}  # noqa: C416  a record is no pair
            finished = [(lane, at) for lane in ours for at in progress[lane].finished]
            if finished:
                await connection.execute(self._sql.finish, *map(list, zip(*finished, strict=True)))
            if ours:
                await connection.execute(self._sql.sweep, list(ours), list(ours.values()))
        return progress.keys() - ours.keys()

    async def put(self, packs: Sequence[tuple[int, bytes]]) -> None:
        """As the port says."""
        if packs:
            await self._placed([(lane_of(partition, payload), payload) for partition, payload in packs])

    async def put_back(self, partition: int, packs: Sequence[bytes]) -> range:
        """As the port says."""
        return checks.offsets(await self._placed([(urgent_of(partition), each) for each in packs]))

    async def _placed(self, packs: checks.Laned) -> checks.Placed:
        counts = checks.counted(packs, self._partitions)
        async with self._server.transaction() as connection:
            await connection.execute(self._sql.lock, list(counts))
            touches, urgent = zip(*counts.values(), strict=True)
            rows = await connection.fetch(self._sql.advance, list(counts), touches, urgent)
            last: dict[Lane, int] = {}
            for partition, *row in rows:
                last |= checks.lasts(partition, tuple(row), counts[partition], self._address.length)
            placed = checks.placed(packs, last)
            columns = map(list, zip(*placed, strict=True))
            await connection.execute(self._sql.put, *columns, self._sql.channel)
        return placed

    # --- waiting packs --------------------------------------------------------------------------------

    async def lag(self) -> Sequence[Lag]:
        """As the port says, by one statement."""
        async with self._server.connection() as connection:
            if await connection.fetchval("SELECT to_regclass($1)", self._sql.about) is None:
                return ()
            self._found(await connection.fetchrow(self._sql.say))
            return [Lag(*row) for row in await connection.fetch(self._sql.lag)]

    async def drop(self, lane: Lane, end: int) -> None:
        """As the port says. Deletes in short transactions, between which others may write."""
        partition, deleted = partition_of_lane(lane), checks.DELETED_MAX
        while deleted == checks.DELETED_MAX:
            async with self._server.transaction() as connection:
                await connection.execute(self._sql.lock, [partition])  # an owner's commit deletes packs too
                done = await connection.fetchval(self._sql.drop[is_urgent_lane(lane)], partition, end)
                said = await connection.execute(self._sql.sweep, [lane], [done])
            deleted = int(said.rpartition(" ")[2])  # DELETE 5000

    async def wait(self, seconds: float) -> None:
        """As the port says. May return once without need after a read has found what rang."""
        await self._bell.wait(seconds)

    async def close(self) -> None:
        """As the port says."""
        await self._bell.close()
        await self._server.close()
