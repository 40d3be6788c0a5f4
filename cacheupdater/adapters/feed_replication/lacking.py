"""What a feed lacks, and which statements make it: pure decisions over what the catalogue says.

`installation` looks (`Found`), and asks here. A lack that only a person can mend (a server's setting, a role) has its statements
for that person. `steps` are the statements that `changes install` runs itself: publication and slot, nothing else. Identities
come before the publication everywhere: PostgreSQL refuses updates of a table that is published without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.adapters.feed_replication.catalogue import PLUGIN, quoted
from cacheupdater.errors import Misconfigured
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
    """What is missing, the server first. Statements are safe from top to bottom."""
    yield from _of_server(found)
    yield from _of_tables(found.tables, settings)
    yield from _of_identities(found.tables)
    yield from _of_publication(found, settings)
    yield from _of_slot(found, settings)
    yield from _of_untold_columns(found.tables)


def hindrances(found: Found, settings: Settings) -> Iterator[Lack]:
    """What must be mended by a person before anything can be made."""
    made = found.server._replace(wal_kept="1")  # a slot without a limit hinders nothing
    yield from (each for each in _of_server(found._replace(server=made)) if each.grave)
    yield from _of_tables(found.tables, settings)
    yield from _of_identities(found.tables)
    yield from (each for each in _of_slot(found, settings) if found.slot is not None and each.grave)


def steps(found: Found, settings: Settings) -> Sequence[str]:
    """The statements that make publication and slot, as far as they are missing."""
    # one that is lost is left to the reader, which must tell that changes were lost
    made = [make(settings.slot)] if found.slot is None else []
    return [*_publication_steps(found, settings), *made]


def script(found: Found, settings: Settings) -> Sequence[str]:
    """All that is missing, for a person who has all rights, with comments. Raises Misconfigured if statements do not mend it."""
    hindering = list(hindrances(found, settings))
    for each in hindering:
        if not each.sql:
            raise Misconfigured(each.what)
    return [*(made for each in hindering for made in _commented(each)), *steps(found, settings)]


def unseen_script(settings: Settings, user: str | None, why: str) -> Sequence[str]:
    """The same of a database that could not be asked: everything, from version 13 on."""
    written = [each.table for each in settings.watched]
    publish = _publish(settings, roots=True, tables=[_written(each) for each in written])
    identities = (
        f"first give each of these tables a primary key, or another REPLICA IDENTITY: {', '.join(written)}."
        " Without one, PostgreSQL refuses the application's updates and deletes once the table is published"
    )
    first, *rest = [*_allowing(user), f"{_comment(identities)}\n{publish}", make(settings.slot)]
    return [f"{_comment(f'{why}. So these are all statements, also for what is there')}\n{first}", *rest]


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
            [_replicates(server.user)],
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
            yield Lack(
                f"there is no table {watched.table}, or the user does not see it: if it is there, GRANT USAGE ON SCHEMA shows it"
            )
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
    for table in unpublished(publication, tables):
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


def _of_identities(tables: Tables) -> Iterator[Lack]:
    """Tables that PostgreSQL must not publish yet. A partition has an identity of its own."""
    for table in (each for each in tables.known if each.refusing):
        key = "a primary key, which later partitions get too" if table.partitioned else "a primary key"
        yield Lack(
            f"table {table.told} has no replica identity: once it is published, PostgreSQL refuses the application's updates and"
            f" deletes. Give it {key}, or another identity",
            [_full(*leaf) for leaf in table.refusing],
        )


def _of_untold_columns(tables: Tables) -> Iterator[Lack]:
    """Columns of keys that no old row tells."""
    for table in (each for each in tables.known if not each.refusing):
        told = {*table.identifying}
        if blind := [each for each in table.watched.columns if each in table.columns and each not in told]:
            yield Lack(
                f"the replica identity of {table.told} lacks {', '.join(blind)}: a deleted row, and a row in which that changes,"
                " do not tell the key that they had. An identity of all columns tells it, and costs WAL; so does a unique index"
                " with that column (REPLICA IDENTITY USING INDEX)",
                [_full(table.schema, table.name)],
                grave=False,
            )


def _publication_steps(found: Found, settings: Settings) -> list[str]:
    name, publication, tables = settings.publication, found.publication, found.tables.known
    roots = found.server.version >= PARTITIONS_SINCE
    if publication is None:
        return [_publish(settings, roots=roots, tables=[each.quoted for each in tables])]
    made = []
    if missing := unpublished(publication, tables):
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


def unpublished(publication: Publication, tables: Sequence[Known]) -> list[Known]:
    """The tables of which the publication tells nothing."""
    if publication.all_tables:
        return []
    return [each for each in tables if each.oid not in publication.oids]


def _all_kinds(name: str) -> str:
    return f"ALTER PUBLICATION {quoted(name)} SET (publish = '{_ALL_KINDS}')"


def _via_root(name: str) -> str:
    return f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)"


def _full(schema: str, name: str) -> str:
    return f"ALTER TABLE {quoted(schema)}.{quoted(name)} REPLICA IDENTITY FULL"


def _replicates(user: str) -> str:
    return f"ALTER ROLE {quoted(user)} REPLICATION"


def _allowing(user: str | None) -> list[str]:
    """What lets this user replicate; nothing if the url names none."""
    if not user:
        return []
    rds = f"where RDS runs the server, instead: GRANT rds_replication TO {quoted(user)}"
    return [f"{_comment(rds)}\n{_replicates(user)}"]


def _commented(lack: Lack) -> list[str]:
    first, *rest = lack.sql
    return [f"{_comment(lack.what)}\n{first}", *rest]


def _comment(text: str) -> str:
    """One line for psql, whatever the names in it hold."""
    return f"-- {' '.join(text.split())}"


def _written(table: str) -> str:
    return ".".join(map(quoted, table.split(".")))
