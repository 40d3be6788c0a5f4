"""What a feed with an outbox needs in the database, made and removed by `changes install` and `changes remove`.

The command line makes one `NotifyInstallation` per source, and so does `check --connect`. An installation runs in one transaction,
and waits for the lock of a table no longer than `LOCK_S`: whoever writes the table meanwhile would wait behind it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_notify import catalogue, outbox
from cacheupdater.adapters.feed_notify.failures import FOREIGN, of_server
from cacheupdater.adapters.feed_notify.settings import connected, user_of
from cacheupdater.errors import Misconfigured
from cacheupdater.feed_ports import Lack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from cacheupdater.adapters.feed_notify.catalogue import Found, State
    from cacheupdater.adapters.feed_notify.outbox import Target
    from cacheupdater.adapters.feed_notify.settings import Connection, NotifySettings

LOCK_S = (
    3  # seconds that writers of a table may have to wait behind an installation that waits for another writer
)
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


class NotifyInstallation:
    """The outbox of one source."""

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        self._outbox = outbox.outbox_of(settings.outbox)

    async def lacks(self) -> Sequence[Lack]:
        """As the port says."""
        async with self._asking() as connection:
            return await self._lacks(connection)

    async def install(self) -> Sequence[str]:
        """As the port says."""
        async with self._asking() as connection:
            lacks = await self._lacks(connection)
            _refuse_hindrances(lacks)
            statements = [statement for lack in lacks for statement in lack.sql]
            await _run(connection, statements)
            return statements

    async def remove(self) -> Sequence[str]:
        """As the port says. Removes the triggers of tables too that are watched no more."""
        async with self._asking("remove") as connection:
            statements = await self._removal(connection)
            await _run(connection, statements)
            return statements

    async def script(self) -> Sequence[str]:
        """As the port says. The database is asked which schema a table is in."""
        async with self._asking() as connection:
            _refuse_hindrances(await self._lacks(connection))
            targets = [found.target for _, found in await self._tables(connection) if found is not None]
        reader = user_of(self._settings)
        return [
            outbox.table_sql(self._outbox),
            *([outbox.grant_sql(self._outbox, reader)] if reader else ()),
            *(statement for each in targets for statement in self._made(each, outbox.EVENTS)),
        ]

    async def removal(self) -> Sequence[str]:
        """As the port says."""
        async with self._asking() as connection:
            return await self._removal(connection)

    async def close(self) -> None:
        """As the port says: each question has had a connection of its own."""

    @asynccontextmanager
    async def _asking(self, command: str = "install") -> AsyncIterator[Connection]:
        connection = await connected(self._settings)
        try:
            yield connection
        except FOREIGN as e:
            raise of_server(e, command=command) from None
        finally:
            connection.terminate()

    async def _removal(self, connection: Connection) -> list[str]:
        there = await catalogue.state(connection, self._outbox)
        return [
            *(statement for name in there.functions for statement in self._dropped(there, name)),
            *([f"DROP TABLE {self._outbox.table}"] if there.there else ()),
        ]

    async def _tables(self, connection: Connection) -> list[tuple[str, Found | None]]:
        return [(each.table, await catalogue.table(connection, each)) for each in self._settings.watched]

    async def _lacks(self, connection: Connection) -> list[Lack]:
        there = await catalogue.state(connection, self._outbox)
        tables = await self._tables(connection)
        lacks = [*self._of_outbox(there)]
        for written, found in tables:
            if found is None:
                lacks.append(
                    Lack(
                        f"there is no table {written}, or this user may not see it: if it is there, GRANT USAGE ON SCHEMA shows it"
                    )
                )
            else:
                lacks += _of_table(found) or self._of_triggers(there, found.target)
                if found.kind == "p":
                    lacks.append(_of_partitions(found.target))
        watched = {self._outbox.function(found.target) for _, found in tables if found is not None}
        return [*lacks, *self._of_others(there, watched)]

    def _of_outbox(self, there: State) -> Iterator[Lack]:
        grant = outbox.grant_sql(self._outbox, there.reader)
        if not there.there:
            yield Lack(f"there is no outbox {self._outbox.table}", [outbox.table_sql(self._outbox), grant])
        elif missing := [each for each in outbox.COLUMNS if each not in there.columns]:
            yield Lack(f"{self._outbox.table} is no outbox: it has no column {missing[0]}; name another")
        elif not there.readable:
            yield Lack(f"the reader may not read and delete in {self._outbox.table}", [grant])
        if not there.rings:
            yield Lack(
                "max_prepared_transactions is not 0: changes are told by a look each second,"
                " as a transaction that rings cannot be prepared",
                grave=False,
            )

    def _of_triggers(self, there: State, target: Target) -> list[Lack]:
        """A function that is out of date, and triggers that are missing or switched off."""
        function = there.functions.get(self._outbox.function(target))
        missing = there.untold(self._outbox, target)
        if function and (function.body != outbox.body(self._outbox, target) or not function.definer):
            what = f"the triggers of {target.name} tell other columns than are watched now"
        elif missing:
            what = f"{target.name} has no trigger that tells of {', '.join(missing)}"
        else:
            return []
        return [Lack(what, self._made(target, missing))]

    def _of_others(self, there: State, watched: set[str]) -> Iterator[Lack]:
        for name in there.functions.keys() - watched:
            tables = {each.table for each in there.triggers if each.function == there.functions[name].oid}
            yield Lack(
                f"triggers tell of {', '.join(sorted(tables)) or name}, which nobody watches now",
                self._dropped(there, name),
                grave=False,
            )

    def _made(self, target: Target, events: Sequence[str]) -> list[str]:
        triggers = [outbox.trigger_sql(self._outbox, target, event) for event in events]
        return [outbox.function_sql(self._outbox, target), *(each for pair in triggers for each in pair)]

    def _dropped(self, there: State, function: str) -> list[str]:
        """What removes a function and its triggers."""
        quote = outbox.quoted
        oid = there.functions[function].oid
        return [
            *(
                f"DROP TRIGGER {quote(each.name)} ON {quote(each.schema)}.{quote(each.bare)}"
                for each in there.triggers
                if each.function == oid
            ),
            f"DROP FUNCTION {quote(self._outbox.schema)}.{quote(function)}()",
        ]


def _refuse_hindrances(lacks: Sequence[Lack]) -> None:
    """Nothing can be made before a person has mended what no statement mends."""
    hindrance = next((lack for lack in lacks if lack.grave and not lack.sql), None)
    if hindrance is not None:
        raise Misconfigured(hindrance.what)


def _of_table(found: Found) -> list[Lack]:
    name = found.target.name
    if found.kind not in {"r", "p"}:
        return [
            Lack(f"{name} is {_KINDS.get(found.kind, 'no table')}, which tells no changes; name its tables")
        ]
    return [Lack(f"the table {name} has no column {each}") for each in found.missing]


def _of_partitions(target: Target) -> Lack:
    return Lack(
        f"statements that name a partition of {target.name} themselves are not told: watch the partitions too",
        grave=False,
    )


async def _run(connection: Connection, statements: Sequence[str]) -> None:
    if not statements:
        return
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_S}s'")
        for statement in statements:
            await connection.execute(statement)
