"""Reads the rows of changed objects inside the application's transaction: their key columns, before and after the change.

`hooks` asks here when the primary key alone does not name the keys. Inside a transaction each question has a savepoint of its
own, so that a question that fails takes nothing of the transaction with it, and rows about to be changed are locked, as the
change itself would lock them a moment later. Outside of a transaction nothing can be locked.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from django.db import DatabaseError, connections, transaction

from cacheupdater_client.watching.announcing import TransactionLost
from cacheupdater_client.watching.rules import check_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cacheupdater_client.watching.rules import Row, Rule

ASKED_MAX = 500  # rows of one question: each takes a bind parameter


class Questions(Protocol):
    """The part of a QuerySet that is used here."""

    def filter(self, **conditions: object) -> Questions: ...
    def order_by(self, *names: str) -> Questions: ...
    def select_for_update(self, *, of: tuple[str, ...]) -> Questions: ...
    def values_list(self, *names: str) -> Iterable[tuple[object, ...]]: ...


@dataclass(frozen=True, slots=True)
class Modelled:
    """A rule and its model, as Django knows it."""

    rule: Rule
    primary: str
    columns: tuple[str, ...]  # all columns that the keys need

    @classmethod
    def of(cls, rule: Rule) -> Modelled:
        """Resolves the names, once."""
        meta = getattr(rule.model, "_meta", None)
        if meta is None:
            raise TypeError(f"{rule.model.__name__} is no model of Django")
        names = tuple(field.attname for field in meta.concrete_fields)
        check_columns(rule, names)
        return cls(rule, meta.pk.attname, names if rule.columns is None else rule.columns)

    @property
    def by_identity(self) -> bool:
        """Whether the primary key names the keys, so that no row need be read."""
        return set(self.columns) <= {self.primary}

    def rows(self, using: str, identities: Sequence[object], *, lock: bool = False) -> Iterator[Row]:
        """The rows with these primary keys, as the transaction sees them."""
        if self.by_identity:
            yield from ({self.primary: identity} for identity in identities)
            return
        manager = self.rule.model._base_manager  # type: ignore[attr-defined]  # noqa: SLF001  Django's documented name
        for at in range(0, len(identities), ASKED_MAX):
            found = manager.using(using).filter(pk__in=identities[at : at + ASKED_MAX])
            yield from (row for _, row in self.answer(using, found, lock=lock))

    def answer(self, using: str, question: Questions, *, lock: bool) -> list[tuple[object, Row]]:
        """The rows of a question, each with its primary key."""
        if lock and connections[using].in_atomic_block and connections[using].features.has_select_for_update:
            of = ("self",) if connections[using].features.has_select_for_update_of else ()
            try:
                return self._answer(using, question.select_for_update(of=of))
            except DatabaseError:  # not every question can lock: DISTINCT, for example
                pass
        return self._answer(using, question)

    def _answer(self, using: str, question: Questions) -> list[tuple[object, Row]]:
        names = list(dict.fromkeys((self.primary, *self.columns)))
        with _apart(using):
            found = list(question.order_by().values_list(*names))
        return [(row[0], dict(zip(names, row, strict=True))) for row in found]


@contextmanager
def _apart(using: str) -> Iterator[None]:
    """In a savepoint, where there is a transaction that a failure could spoil. TransactionLost if the savepoint itself fails."""
    if not connections[using].in_atomic_block:
        yield
        return
    savepoint = _or_lost(lambda: transaction.savepoint(using=using))
    try:
        yield
    except BaseException:
        _or_lost(lambda: transaction.savepoint_rollback(savepoint, using=using))
        raise
    _or_lost(lambda: transaction.savepoint_commit(savepoint, using=using))


def _or_lost(call: Callable[[], object]) -> object:
    try:
        return call()
    except DatabaseError as e:
        raise TransactionLost(e) from e
