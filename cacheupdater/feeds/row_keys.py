"""Which keys a changed row concerns, by the rules of the configuration.

The service makes one `RowKeys` for each feed. A rule names a table and the columns that hold the captures of a key; or one column,
by which a statement finds the keys (`Lookup`). A row tells its keys as it was and as it is, so a changed key concerns both. Pure:
statements are run by the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast
from uuid import UUID

from cacheupdater.feed_ports import Watched
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cacheupdater.feed_ports import Cell, Cells, Changed
    from cacheupdater_client.protocol.patterns import Capture, Captures, CaptureType, Pattern


class Direct(NamedTuple):
    """The columns of a table's row are the captures of a key."""

    table: str  # as the configuration writes it
    namespace: str
    pattern: Pattern
    columns: tuple[str, ...]  # in the order of the captures


class Lookup(NamedTuple):
    """One column of a table's row, by which a statement finds keys."""

    table: str
    namespace: str
    pattern: Pattern
    column: str
    number: int  # among the statements of the feed


Rule: TypeAlias = Direct | Lookup


class Concerned(NamedTuple):
    """What some changes concern."""

    keys: dict[bytes, None]
    lookups: dict[Lookup, dict[Cell, None]]  # with the values of each one's column
    unmapped: dict[str, int]  # rows, by table, that lack a column or whose values cannot stand in a key


class RowKeys:
    """The rules of one feed."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    @property
    def watched(self) -> Sequence[Watched]:
        """The tables, each with the columns that the feed must tell."""
        tables: dict[str, dict[str, None]] = {}
        for rule in self._rules:
            columns = rule.columns if isinstance(rule, Direct) else (rule.column,)
            tables.setdefault(rule.table, {}).update(dict.fromkeys(columns))
        return [Watched(table, tuple(columns)) for table, columns in tables.items()]

    @property
    def namespaces(self) -> Sequence[str]:
        """The namespaces of the keys."""
        return list(dict.fromkeys(rule.namespace for rule in self._rules))

    def of(self, changes: Iterable[Changed]) -> Concerned:
        """The keys of these changes, and what must be looked up. Each once."""
        found = Concerned({}, {}, {})
        rows: dict[str, list[Cells]] = {}
        for change in changes:
            rows.setdefault(change.table, []).extend(change.rows)
        for table, told in rows.items():
            for rule in self._of_table(table):
                if isinstance(rule, Lookup):
                    unmapped = _note_values(rule, told, found)
                else:
                    unmapped = _note_keys(rule, told, found)
                if unmapped:  # a row may be of several rules
                    found.unmapped[table] = max(found.unmapped.get(table, 0), unmapped)
        return found

    def patterns_of(self, table: str) -> dict[str, Pattern]:
        """By namespace, the keys that rows of this table concern."""
        return {rule.namespace: rule.pattern for rule in self._of_table(table)}

    def _of_table(self, told: str) -> Sequence[Rule]:
        """A table without a schema in the configuration is of any schema."""
        _, _, bare = told.rpartition(".")
        return [rule for rule in self._rules if rule.table in (told, bare)]


def _note_values(rule: Lookup, rows: Sequence[Cells], found: Concerned) -> int:
    """Returns how many rows do not tell the column. A NULL tells that no key is concerned."""
    told = [row[rule.column] for row in rows if rule.column in row]
    values: dict[Cell, None] = dict.fromkeys(value for value in told if value is not None)
    if values:
        found.lookups.setdefault(rule, {}).update(values)
    return len(rows) - len(told)


def _note_keys(rule: Direct, rows: Sequence[Cells], found: Concerned) -> int:
    """Returns how many rows do not tell a column, or tell what cannot stand in a key. A NULL tells that no key is concerned."""
    columns = frozenset(rule.columns)
    told = [tuple([row[each] for each in rule.columns]) for row in rows if columns <= row.keys()]
    keys = keys_of(rule.pattern, [cells for cells in told if None not in cells])
    found.keys.update(dict.fromkeys(key for key in keys if key is not None))
    return len(rows) - len(told) + keys.count(None)


def keys_of(pattern: Pattern, rows: Sequence[tuple[Cell, ...]]) -> Sequence[bytes | None]:
    """One key for each of these cells; None where no key can say them. A batch costs no loop in Python if the types fit."""
    columns = zip(pattern.types, zip(*rows, strict=True), strict=True) if rows else ()
    if all(set(map(type, column)) == {kind} for kind, column in columns):
        keys = pattern.format_many(cast("Sequence[Captures]", rows))
        if keys is not None:
            return keys
    return [key_of(pattern, cells) for cells in rows]


def key_of(pattern: Pattern, cells: Sequence[Cell]) -> bytes | None:
    """The key that says these cells; None if no key can."""
    try:
        captures: Captures = tuple(
            _capture(kind, cell) for kind, cell in zip(pattern.types, cells, strict=True)
        )
        return pattern.format(captures)
    except (Inexpressible, ValueError):
        return None


def _capture(kind: CaptureType, cell: Cell) -> Capture:
    if kind is int:
        return cell if isinstance(cell, int) else int(str(cell))
    if kind is UUID:
        return cell if isinstance(cell, UUID) else UUID(str(cell))
    return str(cell)
