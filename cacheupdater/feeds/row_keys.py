"""Which keys a changed row concerns, by the rules of the configuration.

The service makes one `RowKeys` for each feed. A rule names a table and the columns that hold the captures of a key; or one column,
by which a statement finds the keys (`Lookup`). A row tells its keys as it was and as it is, so a changed key concerns both. Pure:
statements are run by the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias
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
    unmapped: int  # rows that did not tell a column, or whose values cannot stand in a key


class RowKeys:
    """The rules of one feed."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._told: dict[str, Sequence[Rule]] = {}  # by table, as the feed tells it

    @property
    def watched(self) -> Sequence[Watched]:
        """The tables, each with the columns that the feed must tell."""
        tables: dict[str, dict[str, None]] = {}
        for rule in self._rules:
            columns = rule.columns if isinstance(rule, Direct) else (rule.column,)
            tables.setdefault(rule.table, {}).update(dict.fromkeys(columns))
        return [Watched(table, tuple(columns)) for table, columns in tables.items()]

    def of(self, changes: Iterable[Changed]) -> Concerned:
        """The keys of these changes, and what must be looked up. Each once."""
        found = Concerned({}, {}, 0)
        unmapped = 0
        for change in changes:
            rules = self._told.get(change.table)
            if rules is None:
                rules = self._told[change.table] = self._of_table(change.table)
            for rule in rules:
                unmapped += sum(not _note(rule, row, found) for row in change.rows)
        return found._replace(unmapped=unmapped)

    def patterns_of(self, table: str) -> dict[str, Pattern]:
        """By namespace, the keys that rows of this table concern."""
        return {rule.namespace: rule.pattern for rule in self._of_table(table)}

    def _of_table(self, told: str) -> Sequence[Rule]:
        """A table without a schema in the configuration is of any schema."""
        _, _, bare = told.rpartition(".")
        return [rule for rule in self._rules if rule.table in (told, bare)]


def _note(rule: Rule, row: Cells, found: Concerned) -> bool:
    """Whether the row tells what the rule asks for. A NULL tells that no key is concerned."""
    if isinstance(rule, Lookup):
        if rule.column not in row:
            return False
        if (value := row[rule.column]) is not None:
            found.lookups.setdefault(rule, {})[value] = None
        return True
    try:
        cells = [row[column] for column in rule.columns]
    except KeyError:
        return False
    if None in cells:
        return True
    key = key_of(rule.pattern, cells)
    if key is not None:
        found.keys[key] = None
    return key is not None


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
