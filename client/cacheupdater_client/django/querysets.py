"""Wraps `update` and `bulk_create` of QuerySet, of which Django tells nobody. `bulk_update` calls `update` itself.

The methods are wrapped once in a process, when the first `watch` is made, and unwrapped with the last. For a model that nobody
watches the wrapped method compares the model with each rule, and calls Django's. For a watched model the rows are asked for, locked, before an update; Django
has no RETURNING for updates. The rows of one call are in memory once.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Protocol

from django.db import connections, transaction
from django.db.models import QuerySet

from cacheupdater_client.django.batch import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cacheupdater_client.django.rows import Modelled, Questions
    from cacheupdater_client.watching.announcing import Watch


class Watching(Protocol):
    """The `Hooks` of one watch."""

    watch: Watch

    def of(self, model: type) -> list[Modelled]: ...
    def names_of(
        self, model: type, using: str, identities: Sequence[object], *, lock: bool = False
    ) -> list[bytes]: ...


_watching: list[Watching] = []
_plain: dict[str, Callable[..., object]] = {}


def wrap(hooks: Watching) -> None:
    """From now on `hooks` learns of such calls."""
    if not _plain:
        _plain.update(update=QuerySet.update, bulk_create=QuerySet.bulk_create)
        QuerySet.update = _update(QuerySet.update)
        QuerySet.bulk_create = _bulk_create(QuerySet.bulk_create)
    _watching.append(hooks)


def unwrap(hooks: Watching) -> None:
    """`hooks` no longer learns of such calls."""
    _watching.remove(hooks)
    if not _watching:
        for name, plain in _plain.items():
            setattr(QuerySet, name, plain)
        _plain.clear()


def _of(model: type) -> list[Watching]:
    return [hooks for hooks in _watching if hooks.of(model)]


def _database(queryset: QuerySet) -> str:
    """Where the queryset will write."""
    asked = queryset.all()
    asked._for_write = True  # noqa: SLF001  as Django's own `update` does, before the router is asked
    database: str = asked.db
    return database


@contextmanager
def _in_one_transaction(using: str) -> Iterator[None]:
    """What is asked before and after a call belongs to the same transaction as the call.

    A transaction of the application's is left alone: an `atomic` of ours within it would condemn it for every error.
    """
    if connections[using].in_atomic_block:
        yield
        return
    with transaction.atomic(using=using):
        yield


# --- update ---------------------------------------------------------------------------------------------


def _update(plain: Callable[..., int]) -> Callable[..., int]:
    @wraps(plain)
    def update(self: QuerySet, **values: object) -> int:
        watching = _of(self.model)
        if not watching or self.query.is_sliced or self.query.combinator:  # Django refuses the last two
            return plain(self, **values)
        using = _database(self)
        with _in_one_transaction(using):
            rows = [_rows_of(hooks, self, using) for hooks in watching]
            count = plain(self, **values)
            for hooks, identities in zip(watching, rows, strict=True):
                _updated(hooks, self.model, using, (identities, count))
        return count

    return update


def _rows_of(hooks: Watching, queryset: QuerySet, using: str) -> list[object]:
    """The primary keys of the rows that an update is about to change. Announces their keys as they are."""
    identities: dict[object, None] = {}
    with hooks.watch.guarded(f"rows of an update of {queryset.model.__name__}"):
        question: Questions = queryset.using(using)
        for modelled in hooks.of(queryset.model):
            found = modelled.answer(using, question, lock=True)
            identities.update(dict.fromkeys(identity for identity, _ in found))
            for _, row in found:
                changed(hooks.watch, using, hooks.watch.keys_of(modelled.rule, row))
    return list(identities)


def _updated(hooks: Watching, model: type, using: str, done: tuple[Sequence[object], int]) -> None:
    """Announces the keys of the rows as they are now."""
    identities, count = done
    with hooks.watch.guarded(f"rows of an update of {model.__name__}"):
        changed(hooks.watch, using, hooks.names_of(model, using, identities))
        if count > len(
            identities
        ):  # another transaction has committed a row between the question and the update
            hooks.watch.unseen(f"rows of an update of {model.__name__}", count - len(identities))


# --- bulk_create ----------------------------------------------------------------------------------------


def _bulk_create(plain: Callable[..., list[object]]) -> Callable[..., list[object]]:
    @wraps(plain)
    def bulk_create(self: QuerySet, objs: Sequence[object], *args: object, **options: object) -> list[object]:
        watching = _of(self.model)
        if not watching:
            return plain(self, objs, *args, **options)
        using, objs = _database(self), list(objs)
        with _in_one_transaction(using):
            known = [getattr(obj, "pk", None) for obj in objs]
            for hooks in watching:  # rows that conflict are there already, with keys of their own
                _announce(hooks, self.model, using, known, lock=True)
            created = plain(self, objs, *args, **options)
            for hooks in watching:
                _announce(hooks, self.model, using, [getattr(obj, "pk", None) for obj in created])
                _count_unseen(hooks, self.model, created, upserts=_upserts(args, options) and None in known)
        return created

    return bulk_create


def _announce(
    hooks: Watching, model: type, using: str, known: Sequence[object], *, lock: bool = False
) -> None:
    with hooks.watch.guarded(f"rows of a bulk_create of {model.__name__}"):
        identities = [identity for identity in known if identity is not None]
        changed(hooks.watch, using, hooks.names_of(model, using, identities, lock=lock))


def _count_unseen(hooks: Watching, model: type, created: Sequence[object], *, upserts: bool) -> None:
    """Rows without a primary key, as with `ignore_conflicts`; and rows whose keys before an upsert nobody knows."""
    without = sum(getattr(obj, "pk", None) is None for obj in created)
    if upserts and not all(modelled.by_identity for modelled in hooks.of(model)):
        without = len(created)
    if without:
        hooks.watch.unseen(f"rows of a bulk_create of {model.__name__}", without)


def _upserts(args: Sequence[object], options: dict[str, object]) -> bool:
    """Whether `update_conflicts` is said, by its name or its place."""
    return bool(options.get("update_conflicts") or args[2:3] == (True,))
