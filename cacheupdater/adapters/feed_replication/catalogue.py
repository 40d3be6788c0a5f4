"""What the database's catalogue says of a feed: the slot, the publication, the tables that are watched.

`feed` looks before it reads, and `installation` before it makes or removes anything. Statements hold names as parameters only.
Nothing here changes the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cacheupdater.adapters.feed_replication.decode import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.adapters.feed_replication.connections import Questions
    from cacheupdater.adapters.feed_replication.decode import Named
    from cacheupdater.feed_ports import Watched

PLUGIN = "pgoutput"

# wal_status exists since version 13, so its column is asked for through JSON
_SLOT = """
SELECT s.plugin, s.database = current_database(), s.active, s.restart_lsn IS NULL OR
       coalesce(to_jsonb(s) ->> 'wal_status' = 'lost', false), coalesce(s.confirmed_flush_lsn - '0/0', 0)::bigint
FROM pg_replication_slots s WHERE s.slot_name = %s
"""
_WAITING = """
SELECT pg_wal_lsn_diff(
         CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, confirmed_flush_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = %s
"""
# A table without a schema is looked up in the search path of our user, as the statements of loads are. Domains are told by
# their own OIDs, so the types beneath them come along. What is told of an old row depends on the partition that holds it.
# to_regclass fails in a schema that we may not use.
_TABLES = """
WITH RECURSIVE watched AS (
  SELECT written, CASE WHEN array_length(parse_ident(written), 1) = 1
       OR has_schema_privilege(to_regnamespace(quote_ident((parse_ident(written))[1])), 'USAGE') THEN to_regclass(written) END AS relation
  FROM unnest(%s::text[]) written
), types AS (
  SELECT a.atttypid AS of, a.atttypid AS kind FROM watched w JOIN pg_attribute a ON a.attrelid = w.relation AND a.attnum > 0
  UNION
  SELECT types.of, t.typbasetype FROM types JOIN pg_type t ON t.oid = types.kind WHERE t.typbasetype <> 0
), leaves AS (
  SELECT c.root, n.nspname, l.relname, l.relkind, l.relreplident, ARRAY(
    SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = l.oid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = l.oid
    AND CASE l.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END) AS key
  FROM (SELECT relation AS root, relation AS leaf FROM watched
        UNION SELECT relation, t.relid FROM watched, pg_partition_tree(relation) t WHERE t.isleaf) c
  JOIN pg_class l ON l.oid = c.leaf AND l.relkind <> 'p' JOIN pg_namespace n ON n.oid = l.relnamespace
)
SELECT w.written, n.nspname, c.relname, c.relkind = 'p', c.relkind IN ('r', 'p') AND c.relpersistence = 'p', c.oid::bigint,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''),
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             AND NOT EXISTS (SELECT FROM leaves l WHERE l.root = c.oid AND l.relreplident <> 'f' AND a.attname <> ALL(l.key))),
       ARRAY(SELECT ARRAY[l.nspname::text, l.relname::text] FROM leaves l
             WHERE l.root = c.oid AND l.relkind = 'r' AND l.relreplident <> 'f' AND l.key = '{}' ORDER BY 1),
       (SELECT jsonb_object_agg(of, kind) FROM types
        WHERE kind <> of AND NOT EXISTS (SELECT FROM pg_type t WHERE t.oid = types.kind AND t.typbasetype <> 0))
FROM watched w LEFT JOIN pg_class c ON c.oid = w.relation LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
"""
_PUBLICATION = """
SELECT p.puballtables, coalesce((to_jsonb(p) ->> 'pubviaroot')::boolean, false),
       p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,
       ARRAY(SELECT r.prrelid::bigint FROM pg_publication_rel r WHERE r.prpubid = p.oid)
       || ARRAY(SELECT (quote_ident(t.schemaname) || '.' || quote_ident(t.tablename))::regclass::bigint
                FROM pg_publication_tables t WHERE t.pubname = p.pubname),
       ARRAY(SELECT r.prrelid::bigint FROM pg_publication_rel r
             WHERE r.prpubid = p.oid AND coalesce(to_jsonb(r) ->> 'prattrs', to_jsonb(r) ->> 'prqual') IS NOT NULL)
FROM pg_publication p WHERE p.pubname = %s
"""


class Slot(NamedTuple):
    """The replication slot."""

    plugin: str | None
    here: bool  # of this database
    active: bool  # somebody reads it
    lost: bool  # it cannot tell what comes next, and never will
    place: int  # what is confirmed


class Known(NamedTuple):
    """A watched table that exists."""

    watched: Watched
    schema: str
    name: str
    partitioned: bool
    publishable: bool
    oid: int
    columns: Sequence[str]  # those that a publication can tell
    identifying: Sequence[str]  # columns that are told of a deleted row, and of a row whose identity changes
    # schema and name of what has no identity at all: once published, PostgreSQL refuses its updates and deletes. The table, or
    # those of its partitions
    refusing: Sequence[tuple[str, str]]

    @property
    def told(self) -> str:
        """The name under which its changes are told."""
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """The name as a statement writes it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"


class Tables(NamedTuple):
    """The watched tables."""

    known: Sequence[Known]
    missing: Sequence[Watched]
    bases: Mapping[int, int]  # the types beneath domains, by OID

    def named(self) -> Mapping[Named, Table]:
        """The tables by the names that the stream has for them."""
        return {(each.schema, each.name): Table(each.told, each.watched.columns) for each in self.known}


class Publication(NamedTuple):
    """The publication."""

    all_tables: bool
    via_root: bool  # changes of partitions are told as those of the table
    all_kinds: bool  # inserts, updates, deletes, truncates
    oids: frozenset[int]  # its tables
    partial: frozenset[int]  # those of which it leaves out rows or columns


async def slot(questions: Questions, name: str) -> Slot | None:
    """The slot, if there is one of this name."""
    rows = await questions.asked(_SLOT, (name,))
    return Slot(*rows[0]) if rows else None


async def publication(questions: Questions, name: str) -> Publication | None:
    """The publication, if there is one of this name."""
    rows = await questions.asked(_PUBLICATION, (name,))
    if not rows:
        return None
    all_tables, via_root, all_kinds, oids, partial = rows[0]
    return Publication(all_tables, via_root, all_kinds, frozenset(oids), frozenset(partial))


async def waiting(questions: Questions, name: str) -> int | None:
    """Bytes of WAL behind the place that is confirmed; None without a slot."""
    rows = await questions.asked(_WAITING, (name,))
    return None if not rows or rows[0][0] is None else max(0, int(rows[0][0]))


async def tables(questions: Questions, watched: Sequence[Watched]) -> Tables:
    """The watched tables, as far as they exist."""
    by_name = {_written(each.table): each for each in watched}
    rows = await questions.asked(_TABLES, (list(by_name),))
    known = [_known(by_name[row[0]], row) for row in rows if row[5] is not None]
    missing = [by_name[row[0]] for row in rows if row[5] is None]
    bases: Mapping[str, str] = next((row[9] for row in rows if row[9]), {})
    return Tables(_once(known), missing, {int(of): int(kind) for of, kind in bases.items()})


def quoted(name: str) -> str:
    """A name as a statement writes it."""
    return '"' + name.replace('"', '""') + '"'


def _written(table: str) -> str:
    """The configuration writes names as they are, and PostgreSQL would fold those that are not quoted."""
    return ".".join(map(quoted, table.split(".")))


def _once(known: Sequence[Known]) -> Sequence[Known]:
    """A table that the configuration writes with its schema and without is one, with the columns of both."""
    tables: dict[int, Known] = {}
    for each in known:
        other = tables.get(each.oid, each)
        columns = tuple(dict.fromkeys([*other.watched.columns, *each.watched.columns]))
        tables[each.oid] = each._replace(watched=each.watched._replace(columns=columns))
    return list(tables.values())


def _known(watched: Watched, row: Sequence[Any]) -> Known:
    return Known(watched, *row[1:9])
