"""Listens to the signals of watched models and wraps three methods of QuerySet, and gathers keys until the commit.

One `Hooks` belongs to one `Watch` and lives as long as it. Whatever fails here is counted and does not reach the application.
The wrapped methods call Django's own, with the same arguments and the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import signals

from cacheupdater_client.django import querysets
from cacheupdater_client.django.batch import changed
from cacheupdater_client.django.rows import Modelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cacheupdater_client.watching.announcing import Watch

BEFORE = "_cacheupdater_before"  # an attribute that an object has between the two signals of its change


class Hooks:
    """The listeners of one watch."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._modelled = [Modelled.of(rule) for rule in watch.rules]

    def listen(self) -> None:
        """From now on, until the watch is stopped."""
        models = {model for each in self._modelled for model in _with_children(each.rule.model)}
        ours: dict[signals.ModelSignal, Callable[..., None]] = {
            signals.pre_save: self._pre_save,
            signals.post_save: self._post_save,
            signals.pre_delete: self._pre_delete,
            signals.post_delete: self._post_delete,
        }
        for signal, listener in ours.items():
            for model in models:
                self._connect(signal, self._guarded(listener), model)
        for model in models:
            for field in (*model._meta.many_to_many, *_reverse_many(model)):  # type: ignore[attr-defined]  # noqa: SLF001  Django's documented name
                self._connect(signals.m2m_changed, self._guarded(self._m2m_changed), field.through)
        querysets.wrap(self)
        self.watch.at_stop(lambda: querysets.unwrap(self))

    def _connect(self, signal: signals.ModelSignal, listener: Callable[..., None], sender: type) -> None:
        name = f"{id(self)}"  # one listener for each sender, also where two models share a table between them
        signal.connect(listener, sender=sender, weak=False, dispatch_uid=name)
        self.watch.at_stop(lambda: signal.disconnect(sender=sender, dispatch_uid=name))

    def _guarded(self, listener: Callable[..., None]) -> Callable[..., None]:
        def guarded(**told: object) -> None:
            with self.watch.guarded("a change, by a fault of cacheupdater_client"):
                listener(**told)

        return guarded

    def of(self, model: type) -> list[Modelled]:
        """The rules of a model's rows."""
        return [each for each in self._modelled if issubclass(model, each.rule.model)]

    # --- one object ---------------------------------------------------------------------------------------

    def _pre_save(self, *, instance: object, using: str, **_told: object) -> None:
        self._remember(instance, self._names(instance, using, lock=True))

    def _post_save(self, *, instance: object, using: str, **_told: object) -> None:
        before = self._remembered(instance)
        changed(self.watch, using, [*before, *self._names(instance, using)])

    def _pre_delete(self, *, instance: object, using: str, **_told: object) -> None:
        self._remember(instance, self._names(instance, using, lock=True))

    def _post_delete(self, *, instance: object, using: str, **_told: object) -> None:
        changed(self.watch, using, self._remembered(instance))

    def _remember(self, instance: object, names: list[bytes]) -> None:
        vars(instance).setdefault(BEFORE, {})[id(self)] = names

    def _remembered(self, instance: object) -> list[bytes]:
        """The keys that the first signal of this change has found. Leaves no trace on the object."""
        told: dict[int, list[bytes]] = vars(instance).get(BEFORE, {})
        names = told.pop(id(self), [])
        if not told:
            vars(instance).pop(BEFORE, None)
        return names

    def _m2m_changed(
        self,
        *,
        instance: object,
        using: str,
        action: str,
        model: type,
        pk_set: set[object] | None,
        **_told: object,
    ) -> None:
        if action not in {"post_add", "post_remove", "post_clear"}:
            return
        changed(self.watch, using, self._names(instance, using))
        if self.of(model):
            if pk_set is None:
                self.watch.unseen(f"the rows of {model.__name__} whose relations were cleared")
            changed(self.watch, using, self.names_of(model, using, [*(pk_set or ())]))

    def _names(self, instance: object, using: str, *, lock: bool = False) -> list[bytes]:
        primary = _primary(instance)
        return [] if primary is None else self.names_of(type(instance), using, [primary], lock=lock)

    def names_of(
        self, model: type, using: str, identities: Sequence[object], *, lock: bool = False
    ) -> list[bytes]:
        """The keys of these rows as they are now."""
        return [
            name
            for modelled in self.of(model)
            for row in modelled.rows(using, identities, lock=lock)
            for name in self.watch.keys_of(modelled.rule, row)
        ]


def _primary(instance: object) -> object:
    primary: object = getattr(instance, "pk", None)
    return primary


def _with_children(model: type) -> Iterator[type]:
    """The model and all models that inherit from it, which send their own signals."""
    yield model
    children: list[type] = model.__subclasses__()
    for child in children:
        yield from _with_children(child)


def _reverse_many(model: type) -> Iterator[object]:
    """Many-to-many relations that another model declares."""
    yield from (
        relation
        for relation in model._meta.related_objects  # type: ignore[attr-defined]  # noqa: SLF001  Django's documented name
        if relation.many_to_many
    )
