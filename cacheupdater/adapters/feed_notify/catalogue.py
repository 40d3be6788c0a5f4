"""What PostgreSQL's catalogue says of an outbox and of the tables that it tells: `installation` and `feed` ask here.

Each question is one statement and changes nothing. Functions count as ours if they write into our outbox, whatever their names are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.adapters.feed_notify.outbox import EVENTS, Outbox, Target, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.adapters.feed_notify.settings import Connection
    from cacheupdater.feed_ports import Watched

# to_regclass fails in a schema that we may not use
_TABLE = """
SELECT n.nspname, c.relname, c.relkind::text AS kind,
  ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns,
  (SELECT jsonb_object_agg(attname, CASE t.typbasetype WHEN 0 THEN t.oid ELSE t.typbasetype END::regtype)::text
   FROM pg_attribute JOIN pg_type t ON t.oid = atttypid WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS types
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = CASE WHEN array_length(parse_ident($1), 1) = 1
  OR has_schema_privilege(to_regnamespace(quote_ident((parse_ident($1))[1])), 'USAGE') THEN to_regclass($1) END
"""
_OWN = """
SELECT p.oid::bigint AS oid, p.proname::text AS name, p.prosrc AS body, p.prosecdef AS definer FROM pg_proc p
WHERE p.pronamespace = to_regnamespace($1) AND p.prorettype = 'trigger'::regtype AND strpos(p.prosrc, $2) > 0
"""
_TRIGGERS = """
SELECT t.tgname::text AS name, t.tgenabled::text AS enabled, n.nspname::text AS schema, c.relname::text AS bare,
  t.tgfoid::bigint AS function
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgfoid = ANY($1::bigint[]) AND NOT t.tgisinternal
"""
_OUTBOX = """
SELECT to_regclass($1) IS NOT NULL AS there,
  ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped) AS columns,
  to_regclass($1) IS NOT NULL AND has_table_privilege(to_regclass($1), 'SELECT')
    AND has_table_privilege(to_regclass($1), 'DELETE') AS readable,
  current_user::text AS reader, current_setting('max_prepared_transactions') = '0' AS rings
"""


class Found(NamedTuple):
    """A watched table, as it is."""

    target: Target
    kind: str  # PostgreSQL's letter: r, p for a table
    missing: Sequence[str]  # watched columns that it does not have
    types: str  # by column, as JSON


class Function(NamedTuple):
    """A function that writes into the outbox."""

    oid: int
    name: str
    body: str
    definer: bool


class Trigger(NamedTuple):
    """A trigger that calls one of these functions."""

    name: str
    enabled: bool
    schema: str
    bare: str
    function: int

    @property
    def table(self) -> str:
        """As feeds tell it."""
        return f"{self.schema}.{self.bare}"


class State(NamedTuple):
    """The outbox, as it is."""

    there: bool
    columns: Sequence[str]
    readable: bool
    reader: str
    rings: bool
    functions: Mapping[str, Function]
    triggers: Sequence[Trigger]

    def untold(self, outbox: Outbox, target: Target) -> Sequence[str]:
        """The events of a table of which no trigger tells: it is missing, or switched off."""
        name = outbox.function(target)
        function = self.functions.get(name)
        ours = {
            each.name
            for each in self.triggers
            if function and each.function == function.oid and each.table == target.name and each.enabled
        }
        return [event for event in EVENTS if f"{name}_{event}" not in ours]


async def table(connection: Connection, watched: Watched) -> Found | None:
    """None: there is no such table, or this user may not see its schema."""
    written = ".".join(quoted(part) for part in watched.table.split("."))
    row = await connection.fetchrow(_TABLE, written)
    if row is None:
        return None
    target = Target(row["nspname"], row["relname"], watched.columns)
    missing = [each for each in watched.columns if each not in row["columns"]]
    return Found(target, row["kind"], missing, row["types"])


async def state(connection: Connection, outbox: Outbox) -> State:
    """What is installed."""
    there = await connection.fetchrow(_OUTBOX, outbox.table)
    assert there is not None  # a SELECT without FROM has a row
    own = await connection.fetch(_OWN, quoted(outbox.schema), f"INSERT INTO {outbox.table} ")
    functions = {each["name"]: Function(*each) for each in own}
    triggers = await connection.fetch(_TRIGGERS, [each.oid for each in functions.values()])
    return State(
        there=there["there"],
        columns=there["columns"],
        readable=there["readable"],
        reader=there["reader"],
        rings=there["rings"],
        functions=functions,
        triggers=[
            Trigger(name, enabled in {"O", "A"}, *rest) for name, enabled, *rest in map(tuple, triggers)
        ],
    )
