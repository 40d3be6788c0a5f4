"""What a feed lacks, and which statements make it: pure decisions over what the catalogue says.

`installation` looks (`Found`), and asks here. A lack that only a person can mend (a server's setting, a role) has its statements
for that person. `steps` are the statements that `changes install` runs itself: publication and slot, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.adapters.feed_replication.catalogue import PLUGIN, quoted
from cacheupdater.feed_ports import Lack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cacheupdater.adapters.feed_replication.catalogue import Known, Publication, Slot, Tables
    from cacheupdater.adapters.feed_replication.settings import Settings

_ALL_KINDS = "insert, update, delete, truncate"
PARTITIONS_SINCE = 130_000  # the version whose publications tell partitions as their table: 13


class Server(NamedTuple):
    """The server, and what our user may do there."""

    version: int
    wal_level: str
    slots_free: int
    senders_free: int
    wal_kept: (
        str | None
    )  # how much WAL a slot may hold: "-1" without a limit; None before version 13, which has no limit
    user: str
    replicates: bool  # the user may


class Found(NamedTuple):
    """All that the database was asked."""

    server: Server
    publication: Publication | None
    tables: Tables
    slot: Slot | None


def lacks(found: Found, settings: Settings) -> Iterator[Lack]:
    """What is missing, the server first."""
    yield from _of_server(found)
    yield from _of_tables(found.tables, settings)
    yield from _of_publication(found, settings)
    yield from _of_slot(found, settings)
    for table in found.tables.known:
        yield from _of_identity(table)


def hindrances(found: Found, settings: Settings) -> Iterator[Lack]:
    """What must be mended by a person before anything can be made."""
    made = found.server._replace(wal_kept="1")  # a slot without a limit hinders nothing
    yield from (each for each in _of_server(found._replace(server=made)) if each.grave)
    yield from _of_tables(found.tables, settings)
    yield from (each for table in found.tables.known for each in _of_identity(table) if each.grave)
    yield from (each for each in _of_slot(found, settings) if found.slot is not None and each.grave)


def steps(found: Found | None, settings: Settings) -> Sequence[str]:
    """The statements that make publication and slot; without `found` all of them."""
    if found is None:
        return [
            _publish(settings, roots=True, tables=[_written(each.table) for each in settings.watched]),
            make(settings.slot),
        ]
    # one that is lost is left to the reader, which must tell that changes were lost
    made = [make(settings.slot)] if found.slot is None else []
    return [*_publication_steps(found, settings), *made]


def make(slot: str) -> str:
    """The statement that makes the slot."""
    return f"SELECT pg_create_logical_replication_slot({literal(slot)}, {literal(PLUGIN)})"


def literal(value: str) -> str:
    """A text as a statement writes it."""
    return "'" + value.replace("'", "''") + "'"


def _of_server(found: Found) -> Iterator[Lack]:
    server = found.server
    if server.wal_level != "logical":
        yield Lack(
            f"wal_level is {server.wal_level}, and must be logical: it needs a restart of the server",
            ["ALTER SYSTEM SET wal_level = 'logical'"],
        )
    if not server.replicates:
        yield Lack(
            f"the user {server.user} may not replicate (where RDS runs the server: GRANT rds_replication)",
            [f"ALTER ROLE {quoted(server.user)} REPLICATION"],
        )
    if found.slot is None and server.slots_free < 1:
        yield Lack("all replication slots are taken: raise max_replication_slots, and restart the server")
    if server.senders_free < 1 and (found.slot is None or not found.slot.active):
        yield Lack("all WAL senders are taken: raise max_wal_senders, and restart the server")
    if server.wal_kept == "-1":
        yield Lack(
            "max_slot_wal_keep_size has no limit: while no updater reads, the slot keeps WAL until the disk is full",
            ["ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'", "SELECT pg_reload_conf()"],
            grave=False,
        )
    if server.wal_kept is None:
        yield Lack(
            "before version 13 nothing limits the WAL that a slot keeps: watch the disk while no updater reads",
            grave=False,
        )


def _of_tables(tables: Tables, settings: Settings) -> Iterator[Lack]:
    for watched in settings.watched:
        if watched in tables.missing:
            yield Lack(f"there is no table {watched.table}, or the user does not see it")
    for table in tables.known:
        if not table.publishable:
            yield Lack(
                f"{table.told} is no table whose changes PostgreSQL publishes, but a view, a foreign table or one without WAL:"
                " name the tables behind it"
            )
        for column in table.watched.columns:
            if column not in table.columns:
                yield Lack(f"table {table.told} has no column {column} that is told; a generated one is not")


def _of_publication(found: Found, settings: Settings) -> Iterator[Lack]:
    name, publication, tables = settings.publication, found.publication, found.tables.known
    if publication is None:
        if tables:
            yield Lack(f"there is no publication {name}", _publication_steps(found, settings))
        return
    for table in _unpublished(publication, tables):
        added = [f"ALTER PUBLICATION {quoted(name)} ADD TABLE {table.quoted}"]
        yield Lack(f"table {table.told} is not in the publication {name}", added)
    for table in tables:
        if table.oid in publication.partial:
            yield Lack(
                f"the publication {name} tells only some columns or rows of {table.told}",
                [
                    f"ALTER PUBLICATION {quoted(name)} DROP TABLE {table.quoted}",
                    f"ALTER PUBLICATION {quoted(name)} ADD TABLE {table.quoted}",
                ],
                grave=False,
            )
    if not publication.all_kinds:
        yield Lack(f"the publication {name} leaves out a kind of change", [_all_kinds(name)])
    if any(table.partitioned for table in tables) and not publication.via_root:
        yield Lack(f"the publication {name} tells changes of partitions under other names", [_via_root(name)])


def _of_slot(found: Found, settings: Settings) -> Iterator[Lack]:
    if found.slot is None:
        yield Lack(f"there is no replication slot {settings.slot}", [make(settings.slot)])
    elif found.slot.plugin != PLUGIN or not found.slot.here:
        yield Lack(
            f"the replication slot {settings.slot} belongs to another database or plugin: name another slot"
        )
    elif found.slot.lost:
        yield Lack(
            f"the replication slot {settings.slot} has lost WAL: the reader makes it anew", grave=False
        )


def _of_identity(table: Known) -> Iterator[Lack]:
    name, full = table.told, [f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL"]
    if table.refuses:
        yield Lack(
            f"table {name} has no replica identity: once it is published, PostgreSQL refuses the application's updates and"
            " deletes. Give it a primary key, or another identity",
            full,
        )
        return
    blind = [
        each for each in table.watched.columns if each not in table.identifying and each in table.columns
    ]
    if blind:
        yield Lack(
            f"the replica identity of {name} lacks {', '.join(blind)}: a deleted row, and a row in which that changes,"
            " do not tell the key that they had. An identity of all columns tells it, and costs WAL; so does a unique index"
            " with that column (REPLICA IDENTITY USING INDEX)",
            full,
            grave=False,
        )


def _publication_steps(found: Found, settings: Settings) -> list[str]:
    name, publication, tables = settings.publication, found.publication, found.tables.known
    roots = found.server.version >= PARTITIONS_SINCE
    if publication is None:
        return [_publish(settings, roots=roots, tables=[each.quoted for each in tables])]
    made = []
    if missing := _unpublished(publication, tables):
        made.append(
            f"ALTER PUBLICATION {quoted(name)} ADD TABLE {', '.join(each.quoted for each in missing)}"
        )
    if not publication.all_kinds:
        made.append(_all_kinds(name))
    if roots and any(table.partitioned for table in tables) and not publication.via_root:
        made.append(_via_root(name))
    return made


def _publish(settings: Settings, *, roots: bool, tables: Sequence[str]) -> str:
    told = " WITH (publish_via_partition_root = true)" if roots else ""
    return f"CREATE PUBLICATION {quoted(settings.publication)} FOR TABLE {', '.join(tables)}{told}"


def _unpublished(publication: Publication, tables: Sequence[Known]) -> list[Known]:
    if publication.all_tables:
        return []
    return [each for each in tables if each.oid not in publication.oids]


def _all_kinds(name: str) -> str:
    return f"ALTER PUBLICATION {quoted(name)} SET (publish = '{_ALL_KINDS}')"


def _via_root(name: str) -> str:
    return f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)"


def _written(table: str) -> str:
    return ".".join(map(quoted, table.split(".")))
