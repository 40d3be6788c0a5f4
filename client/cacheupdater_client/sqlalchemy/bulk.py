"""Which keys a statement of the ORM changes: `session.execute(update(Product)…)`, and the same with `delete` and `insert`.

`hooks` makes a `Statement` for each such statement and runs it. The statement itself returns the primary keys of its rows, by
RETURNING, and the application's result stays what it was. Where keys hold other columns too, the rows are read before the
statement and after it. The rows of one statement are in memory once, as with SQLAlchemy's own `synchronize_session="fetch"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Delete, Insert, Update
from sqlalchemy.engine import CursorResult

from cacheupdater_client.sqlalchemy.rows import Mapped, Unread, answer, of_identities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy.engine import Result
    from sqlalchemy.orm import Mapper, ORMExecuteState
    from sqlalchemy.sql.elements import NamedColumn

    from cacheupdater_client.sqlalchemy.pending import Identity
    from cacheupdater_client.watching.announcing import Watch

Row: TypeAlias = dict[str, object]


def watched(state: ORMExecuteState, mapped: Sequence[Mapped]) -> list[Mapped]:
    """The rules of the rows that a statement of the ORM may change."""
    mapper = state.bind_mapper
    if mapper is None or not state.is_orm_statement:
        return []
    return [each for each in mapped if mapper.isa(each.mapper) or each.mapper.isa(mapper)]


def of_core(state: ORMExecuteState, mapped: Sequence[Mapped]) -> str | None:
    """The watched table that a statement of Core changes. Its rows are not asked for, only counted as unseen."""
    if state.is_orm_statement or not isinstance(state.statement, Insert | Update | Delete):
        return None
    table = state.statement.table
    return next((str(table) for each in mapped if table in each.mapper.tables), None)


class Statement:
    """One statement of the ORM that changes watched rows."""

    def __init__(
        self, state: ORMExecuteState, mapper: Mapper[object], rules: list[Mapped], watch: Watch
    ) -> None:
        self._state = state
        self._session = state.session
        self._mapper = mapper
        self._rules = rules
        self._watch = watch
        self._statement = state.statement
        # a rule of a subclass concerns some of the rows only, and a question finds out which
        self._read = [each for each in rules if not (each.by_identity and mapper.isa(each.mapper))]
        self._primary = rules[0].primary
        self.names: list[bytes] = []

    def run(self) -> Result[object]:
        """Runs it, and learns `names`. Raises what the statement raises, and nothing else."""
        what = f"rows of a statement on {self._mapper.class_.__name__}"
        if self._session.autoflush and self._state.execution_options.get("autoflush", True):
            self._session.flush()  # as SQLAlchemy does a moment later: a question must find these rows too
        given: list[Identity] | None = None
        with self._watch.guarded(what):
            given = self._given()
            if not self._state.is_insert:
                given = self._before(given)
        result, returned = self._invoke()
        with self._watch.guarded(what):
            identities = returned() if returned is not None else given
            if identities is None:
                self._watch.unseen(what)
            else:
                self._after(identities)
        return result

    # --- which rows ---------------------------------------------------------------------------------------

    def _given(self) -> list[Identity] | None:
        """The primary keys among the parameters, where each set of parameters is a row."""
        parameters = self._state.parameters
        rows = parameters if isinstance(parameters, list) else [parameters if self._state.is_insert else None]
        identities = [
            self._identity(row) for row in rows if isinstance(row, dict) and set(self._primary) <= set(row)
        ]
        return identities if identities and len(identities) == len(rows) else None

    def _identity(self, row: Mapping[str, object]) -> Identity:
        return tuple(row[name] for name in self._primary)

    def _before(self, given: list[Identity] | None) -> list[Identity] | None:
        """Learns the keys of the rows as they are. Returns their primary keys if the statement will not."""
        returns = self._returns()
        asked = self._read if returns or given is not None else self._rules
        found = given
        for mapped in asked:
            try:
                rows = self._rows_before(mapped, given)
            except Unread:
                self._watch.unseen(f"rows of {mapped.rule.model.__name__} before a statement")
                continue
            self._learn(mapped, rows)
            if not returns and set(self._primary) <= set(mapped.columns):
                found = [tuple(row[name] for name in self._primary) for row in rows]
        return found

    def _rows_before(self, mapped: Mapped, given: list[Identity] | None) -> list[Row]:
        if given is not None:
            return [dict(row) for row in of_identities(self._session, mapped, given, lock=True)]
        question = mapped.question(self._mapper)
        where = self._statement.whereclause if isinstance(self._statement, Update | Delete) else None
        if where is not None:
            question = question.where(where)
        parameters = self._state.parameters
        bound = parameters if isinstance(parameters, dict) else None
        return [dict(row) for row in answer(self._session, mapped, mapped.in_order(question), bound)]

    def _after(self, identities: list[Identity]) -> None:
        """Learns the keys of the rows as they are now."""
        for mapped in self._rules:
            if mapped not in self._read:
                self._learn(mapped, [dict(mapped.row_of(identity)) for identity in identities])
            elif not self._state.is_delete:
                try:
                    self._learn(
                        mapped, [dict(row) for row in of_identities(self._session, mapped, identities)]
                    )
                except Unread:
                    self._watch.unseen(f"rows of {mapped.rule.model.__name__} after a statement")

    def _learn(self, mapped: Mapped, rows: Sequence[Row]) -> None:
        for row in rows:
            self.names += self._watch.keys_of(mapped.rule, row)

    # --- the statement itself -----------------------------------------------------------------------------

    def _returns(self) -> bool:
        """Whether this database returns the rows of such a statement."""
        dialect = self._session.get_bind(**self._state.bind_arguments).dialect
        able = dialect.update_returning if self._state.is_update else dialect.delete_returning
        return able and not self._state.is_executemany

    def _invoke(self) -> tuple[Result[object], Callable[[], list[Identity] | None] | None]:
        """The application's result, and a way to the primary keys of its rows if the statement returns them."""
        statement = self._statement
        if not isinstance(statement, Insert | Update | Delete):
            return self._state.invoke_statement(), None
        if len(statement.exported_columns):
            return self._invoke_returning(statement)
        if isinstance(statement, Insert):
            result = self._state.invoke_statement()
            return result, None if self._state.is_executemany else lambda: _inserted(result)
        if not self._returns():
            return self._state.invoke_statement(), None
        columns = list(self._mapper.local_table.primary_key)
        result = self._state.invoke_statement(statement.return_defaults(*columns))
        return result, lambda: self._returned(result, columns)

    def _invoke_returning(
        self, statement: Insert | Update | Delete
    ) -> tuple[Result[object], Callable[[], list[Identity] | None]]:
        """The application asks for rows itself: the primary keys come behind them, and are taken off again."""
        attributes = [getattr(self._mapper.class_, name) for name in self._primary]
        frozen = self._state.invoke_statement(statement.returning(*attributes)).freeze()
        identities = [tuple(row)[-len(attributes) :] for row in frozen()]
        width = len(list(frozen().keys())) - len(attributes)
        return frozen().columns(*range(width)), lambda: identities

    def _returned(
        self, result: Result[object], columns: Sequence[NamedColumn[object]]
    ) -> list[Identity] | None:
        if not isinstance(result, CursorResult):
            return None
        rows = result.returned_defaults_rows
        if rows is None:  # there were none, or this form of statement returns nothing here
            return [] if result.rowcount == 0 else None
        names = [self._mapper.get_property_by_column(column).key for column in columns]
        order = [names.index(name) for name in self._primary]
        return [tuple(row._mapping[columns[at]] for at in order) for row in rows]  # noqa: SLF001  its documented name


def _inserted(result: Result[object]) -> list[Identity] | None:
    """The primary key of the one row that was inserted; None if there were several, or if it is not known."""
    row = result.inserted_primary_key if isinstance(result, CursorResult) else None
    return None if row is None or None in tuple(row) else [tuple(row)]
