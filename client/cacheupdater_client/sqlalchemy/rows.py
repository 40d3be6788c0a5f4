"""Reads the rows of changed objects inside the application's transaction: their key columns, before and after the change.

`hooks` and `bulk` ask here when the primary key alone does not name the keys. Each question runs in a savepoint of its own,
so that a question that fails (a timeout, a missing right) takes nothing of the transaction with it. A row that is about to be
changed is locked, as the change itself would lock it a moment later: so nobody changes its key columns in between.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sqlalchemy import inspect, select, tuple_
from sqlalchemy.exc import NoInspectionAvailable, SQLAlchemyError

from cacheupdater_client.watching.announcing import TransactionLost
from cacheupdater_client.watching.rules import check_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Select
    from sqlalchemy.orm import InstrumentedAttribute, Mapper, Session

    from cacheupdater_client.sqlalchemy.pending import Identity
    from cacheupdater_client.watching.rules import Row, Rule

T = TypeVar("T")
Question: TypeAlias = "Select[*tuple[object, ...]]"
ASKED_MAX = 500  # rows of one question: each takes a bind parameter for each column of its primary key


@dataclass(frozen=True, slots=True)
class Mapped:
    """A rule and its model, as SQLAlchemy maps it."""

    rule: Rule
    mapper: Mapper[object]
    primary: tuple[str, ...]  # the names of the primary key's columns
    columns: tuple[str, ...]  # all columns that the keys need

    @classmethod
    def of(cls, rule: Rule) -> Mapped:
        """Resolves the names, once."""
        try:
            mapper: Mapper[object] = inspect(rule.model)
        except NoInspectionAvailable as e:
            raise TypeError(f"{rule.model.__name__} is no class that SQLAlchemy maps") from e
        check_columns(rule, mapper.column_attrs.keys())
        primary = tuple(mapper.get_property_by_column(column).key for column in mapper.primary_key)
        columns = tuple(mapper.column_attrs.keys()) if rule.columns is None else rule.columns
        return cls(rule, mapper, primary, columns)

    @property
    def by_identity(self) -> bool:
        """Whether the primary key names the keys, so that no row need be read."""
        return set(self.columns) <= set(self.primary)

    def row_of(self, identity: Identity) -> Row:
        """What is known of a row without reading it."""
        return dict(zip(self.primary, identity, strict=True))

    def question(self, mapper: Mapper[object] | None = None) -> Question:
        """SELECT of the columns that the keys need; of a subclass, if `mapper` is one."""
        mapper = mapper if mapper is not None and mapper.isa(self.mapper) else self.mapper
        return select(*(getattr(mapper.class_, name) for name in self.columns)).select_from(mapper)

    def among(self, identities: Sequence[Identity]) -> ColumnElement[bool]:
        """Rows with one of these primary keys."""
        attributes = [self._attribute(name) for name in self.primary]
        if len(attributes) == 1:
            return attributes[0].in_([identity[0] for identity in identities])
        return tuple_(*attributes).in_([tuple(identity) for identity in identities])

    def in_order(self, question: Question) -> Question:
        """Locks the rows in the order in which a flush updates them: two flushes cannot lock each other out."""
        return question.order_by(*(self._attribute(name) for name in self.primary)).with_for_update()

    def _attribute(self, name: str) -> InstrumentedAttribute[object]:
        attribute: InstrumentedAttribute[object] = getattr(self.mapper.class_, name)
        return attribute


class Unread(Exception):
    """The rows could not be read. Count them as unseen."""


@contextmanager
def apart(connection: Connection) -> Iterator[None]:
    """In a savepoint: what fails within takes nothing with it. TransactionLost if the savepoint itself fails."""
    savepoint = _or_lost(connection.begin_nested)
    try:
        yield
    except BaseException:
        _or_lost(savepoint.rollback)
        raise
    try:
        _or_lost(savepoint.commit)
    except TransactionLost:
        # SQLAlchemy would go on taking it for the innermost one, and warn when the application rolls back its own
        with suppress(SQLAlchemyError):
            savepoint.close()
        raise


def _or_lost(call: Callable[[], T]) -> T:
    try:
        return call()
    except SQLAlchemyError as e:
        raise TransactionLost(e) from e


def of_identities(
    session: Session, mapped: Mapped, identities: Sequence[Identity], *, lock: bool = False
) -> Iterator[Row]:
    """The rows with these primary keys, as the transaction sees them."""
    for at in range(0, len(identities), ASKED_MAX):
        question = mapped.question().where(mapped.among(identities[at : at + ASKED_MAX]))
        yield from answer(session, mapped, mapped.in_order(question) if lock else question)


def answer(
    session: Session,
    mapped: Mapped,
    question: Question,
    params: Mapping[str, object] | None = None,
) -> list[Row]:
    """The rows, or Unread."""
    connection = session.connection(bind_arguments={"mapper": mapped.mapper})
    try:
        with apart(connection):
            found = connection.execute(question, params or {}).all()
    except SQLAlchemyError as e:
        raise Unread(str(e)) from e
    return [dict(zip(mapped.columns, row, strict=True)) for row in found]


def remembered(mapped: Mapped, obj: object) -> Row | None:
    """The row before the change as the object remembers it; None if it never knew."""
    row: dict[str, object] = {}
    for name in mapped.columns:
        history = inspect(obj, raiseerr=True).attrs[name].history
        known = history.deleted or history.unchanged
        if not known:
            return None
        row[name] = known[0]
    return row
