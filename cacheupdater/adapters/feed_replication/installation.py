"""What a replication feed needs in the database: made, removed, or said.

`changes install`, `changes remove` and `check --connect` make one `ReplicationInstallation` for a source, and close it. It makes
a publication of the watched tables and a slot, and nothing else: settings of the server, roles and replica identities are for
people. A table without a replica identity is refused, because PostgreSQL would refuse the application's updates of it. A lost
slot is left to the reader, which makes it anew and tells that changes were lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_replication import catalogue, failures, lacking, slot
from cacheupdater.adapters.feed_replication.catalogue import quoted
from cacheupdater.adapters.feed_replication.connections import Questions, driver
from cacheupdater.adapters.feed_replication.lacking import Found, Server
from cacheupdater.adapters.feed_replication.settings import user_of
from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.adapters.feed_replication.catalogue import Slot
    from cacheupdater.adapters.feed_replication.settings import Settings
    from cacheupdater.feed_ports import Lack

_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('wal_level'),
       current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots)::int,
       current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication)::int,
       current_setting('max_slot_wal_keep_size', true), current_user::text,
       r.rolsuper OR r.rolreplication
       OR EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication' AND pg_has_role(r.oid, g.oid, 'usage'))
FROM pg_roles r WHERE r.rolname = current_user
"""


class ReplicationInstallation:
    """The publication and the slot of one source."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._questions = Questions(settings)

    async def lacks(self) -> Sequence[Lack]:
        """What is missing now."""
        return list(lacking.lacks(await self._found(), self._settings))

    async def install(self) -> Sequence[str]:
        """Makes publication and slot, as far as they are missing."""
        found = await self._found()
        hindrance = next(iter(lacking.hindrances(found, self._settings)), None)
        if hindrance is not None:
            raise Misconfigured("; ".join([hindrance.what, *hindrance.sql]))
        statements = lacking.steps(found, self._settings)
        await self._run(statements, "install")
        return statements

    async def remove(self) -> Sequence[str]:
        """Drops slot and publication."""
        there = await self._own_slot()
        if there is not None and there.active:
            raise Unavailable(f"a process reads the slot {self._settings.slot}: stop the updaters first")
        statements = await self._dropped(there)
        await self._run(statements, "remove")
        return statements

    async def script(self) -> Sequence[str]:
        """What is missing, also what `install` wants of a person first; all of it if the database is away."""
        try:
            found = await self._found()
        except Unavailable as e:
            return lacking.unseen_script(self._settings, user_of(self._settings), str(e))
        return lacking.script(found, self._settings)

    async def removal(self) -> Sequence[str]:
        """What drops slot and publication, as far as they are there."""
        return await self._dropped(await self._own_slot())

    async def close(self) -> None:
        """Ends the connection."""
        self._questions.close()

    async def _own_slot(self) -> Slot | None:
        there = await catalogue.slot(self._questions, self._settings.slot)
        if there is not None and (there.plugin != catalogue.PLUGIN or not there.here):
            raise Misconfigured(f"the slot {self._settings.slot} belongs to another database or plugin")
        return there

    async def _dropped(self, there: Slot | None) -> list[str]:
        slot, publication = self._settings.slot, self._settings.publication
        made = [] if there is None else [f"SELECT pg_drop_replication_slot({lacking.literal(slot)})"]
        if await catalogue.publication(self._questions, publication) is not None:
            made.append(f"DROP PUBLICATION {quoted(publication)}")
        return made

    async def _found(self) -> Found:
        driver()
        settings = self._settings
        [server] = await self._questions.asked(_SERVER)
        return Found(
            Server(*server),
            await catalogue.publication(self._questions, settings.publication),
            await catalogue.tables(self._questions, settings.watched),
            await catalogue.slot(self._questions, settings.slot),
        )

    async def _run(self, statements: Sequence[str], command: str) -> None:
        for statement in statements:
            try:
                await self._questions.ask(statement, deadline=slot.MAKE_S)
            except driver().Error as e:
                raise failures.of_server(e, command=command) from None
