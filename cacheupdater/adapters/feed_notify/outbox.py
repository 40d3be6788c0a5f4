"""The statements that make an outbox: one table, and per watched table a function and its triggers. Pure text.

`installation` runs them. An application's statement fires one trigger, whatever number of rows it changes, which writes one row of
the outbox for up to `TOLD_TOGETHER` different changes, and rings once per transaction. A row that is the same afterwards is not
told. Why each part is as it is:

- SECURITY DEFINER: whoever may write the table needs no right to the outbox. The fixed search_path keeps their objects out.
- No lock of ours, and no index but the key: nothing that fails or waits where a plain INSERT does not.
- A column that was dropped since does not break the application's statement: the whole table is told as changed.
- FULL JOIN, for a plan is kept from a statement of one row to one of a million, and no FULL JOIN is a nested loop.
- One INSERT for all rows of a statement: at 10,000 rows two thirds of what row triggers cost the server, and a fiftieth of the
  rows to read. A single row costs some 0.1 ms more than with a row trigger. Old and new rows may wait in temporary files.
- No ringing where two-phase commits are allowed, for PREPARE TRANSACTION refuses to carry it. The reader then looks by itself.
  Elsewhere PostgreSQL lets transactions that ring commit one after the other, and fails them if its queue of rings (8 GB) is full:
  then another program has listened for hours inside one transaction.
"""

# ruff: noqa: S608  all statements are of our own quoted names and literals

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

CHANNEL = "cacheupdater"
TOLD_TOGETHER = 50  # changes of one statement in one row of the outbox: some kB
_NAME_MAX = 63  # bytes of a name in PostgreSQL
_EVENTS = {  # by the end of the trigger's name: its event, and the rows that it sees
    "insert": ("INSERT", " REFERENCING NEW TABLE AS new_rows"),
    "update": ("UPDATE", " REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"),
    "delete": ("DELETE", " REFERENCING OLD TABLE AS old_rows"),
    "truncate": ("TRUNCATE", ""),
}
EVENTS = tuple(_EVENTS)
COLUMNS = ("id", "at", "name", "cells")


class Outbox(NamedTuple):
    """The names of one outbox."""

    schema: str
    name: str

    @property
    def table(self) -> str:
        """The table, quoted."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def lock(self) -> int:
        """The number of the advisory lock that is the turn to read."""
        return crc32(self.table.encode()) | 0x63757064 << 32  # cupd, as others may lock numbers too

    @property
    def read(self) -> str:
        """Rows behind an id, with the oldest transaction that still runs, and the next that will begin."""
        now = "txid_current_snapshot()"
        return (
            "SELECT id, extract(epoch FROM at)::float8, name, cells::text,"
            f" txid_snapshot_xmin({now}), txid_snapshot_xmax({now}) FROM {self.table} WHERE id > $1 ORDER BY id LIMIT $2"
        )

    @property
    def delete(self) -> str:
        """Removes confirmed rows."""
        return f"DELETE FROM {self.table} WHERE id = ANY($1::bigint[])"

    @property
    def counted(self) -> str:
        """Counts the rows, up to a bound."""
        return f"SELECT count(*) FROM (SELECT FROM {self.table} LIMIT $1) counted"

    def function(self, table: Target) -> str:
        """The name of the function of a table, and the beginning of its triggers' names."""
        digest = f"{crc32(table.name.encode()):08x}"
        room = _NAME_MAX - len("_truncate") - len(digest) - 2
        return f"{self.name}_{table.bare}".encode()[:room].decode(errors="ignore") + f"_{digest}"


class Target(NamedTuple):
    """A watched table as the database has it."""

    schema: str
    bare: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """As feeds tell it."""
        return f"{self.schema}.{self.bare}"

    @property
    def quoted(self) -> str:
        """As statements name it."""
        return f"{quoted(self.schema)}.{quoted(self.bare)}"


def outbox_of(written: str) -> Outbox:
    """From the setting: the schema is `public` if it names none."""
    schema, _, name = written.rpartition(".")
    return Outbox(schema or "public", name)


def table_sql(outbox: Outbox) -> str:
    """Makes the table. Dead rows are removed early, for the reader passes over them."""
    return (
        f"CREATE TABLE IF NOT EXISTS {outbox.table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " at timestamptz NOT NULL DEFAULT clock_timestamp(), name text NOT NULL, cells jsonb)"
        " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)"
    )


def grant_sql(outbox: Outbox, reader: str) -> str:
    """Lets the reader read and confirm."""
    return f"GRANT SELECT, DELETE ON {outbox.table} TO {quoted(reader)}"


def function_sql(outbox: Outbox, table: Target) -> str:
    """Makes the function of a table, or brings it up to date."""
    return (
        f"CREATE OR REPLACE FUNCTION {quoted(outbox.schema)}.{quoted(outbox.function(table))}() RETURNS trigger"
        " LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
        f" AS {literal(body(outbox, table))}"
    )


def trigger_sql(outbox: Outbox, table: Target, event: str) -> tuple[str, str]:
    """Makes one trigger of a table, instead of the one that may be there."""
    function = outbox.function(table)
    name = quoted(f"{function}_{event}")
    said, rows = _EVENTS[event]
    return (
        f"DROP TRIGGER IF EXISTS {name} ON {table.quoted}",
        (
            f"CREATE TRIGGER {name} AFTER {said} ON {table.quoted}{rows} FOR EACH STATEMENT"
            f" EXECUTE FUNCTION {quoted(outbox.schema)}.{quoted(function)}()"
        ),
    )


def body(outbox: Outbox, table: Target) -> str:
    """The text of the function."""
    names = ", ".join(map(literal, table.columns))
    rows = {
        "INSERT": f"SELECT {_cells(table, 'n')} AS c, true AS alive FROM new_rows n",
        "UPDATE": (
            "SELECT coalesce(n.c, o.c) AS c, n.c IS NOT NULL AS alive"
            f" FROM (SELECT ROW(x.*) AS image, {_cells(table, 'x')} AS c FROM old_rows x) o"
            f" FULL JOIN (SELECT ROW(x.*) AS image, {_cells(table, 'x')} AS c FROM new_rows x) n ON o.image *= n.image"
            " WHERE o.c IS NULL OR n.c IS NULL"
        ),
        "DELETE": f"SELECT {_cells(table, 'o')} AS c, false AS alive FROM old_rows o",
    }
    branches = "".join(
        f"  ELSIF TG_OP = '{event}' THEN\n    {_insert(outbox, table, said)};\n"
        for event, said in rows.items()
    )
    return (
        "\nBEGIN\n"
        f"  IF TG_OP = 'TRUNCATE' OR {len(table.columns)} > (SELECT count(*) FROM pg_attribute"
        f" WHERE attrelid = TG_RELID AND attname IN ({names}) AND NOT attisdropped) THEN\n"
        f"    INSERT INTO {outbox.table} (name, cells) VALUES ({literal(table.name)}, to_jsonb(TG_OP));\n"
        f"{branches}"
        "  END IF;\n"
        "  IF FOUND AND current_setting('max_prepared_transactions') = '0' THEN\n"
        f"    PERFORM pg_notify('{CHANNEL}', '');\n"
        "  END IF;\n"
        "  RETURN NULL;\n"
        "END\n"
    )


def _insert(outbox: Outbox, table: Target, rows: str) -> str:
    """One row of the outbox for some different changes: cells as they are, and cells that are no more."""
    return (
        f"INSERT INTO {outbox.table} (name, cells) SELECT {literal(table.name)}, jsonb_build_object("
        "'was', jsonb_agg(c) FILTER (WHERE NOT alive), 'is', jsonb_agg(c) FILTER (WHERE alive))"
        f" FROM (SELECT c, bool_or(alive) AS alive, row_number() OVER () / {TOLD_TOGETHER} AS part FROM ({rows}) d GROUP BY c) e"
        " GROUP BY part"
    )


def _cells(table: Target, row: str) -> str:
    return (
        "jsonb_build_object("
        + ", ".join(f"{literal(each)}, {row}.{quoted(each)}::text" for each in table.columns)
        + ")"
    )


def quoted(name: str) -> str:
    """A name in a statement."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in a statement, whatever `standard_conforming_strings` says."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'" if "\\" in text else f"'{escaped}'"
