"""What has changed between two configurations: by name, and what each change needs.

`reloading` asks before it changes a running updater, and the command `reload --dry-run` shows the answer. Namespaces, sources
and defaults change while the updater runs. The settings in `RESTART` are those of the doors and of the process itself: they
need a restart. Some settings say in what form values are written. After a change of theirs the updater replaces the values
that it has written before, so an application that cannot read the new form breaks: `warnings` says so. The functions are
pure. They name settings and show no values, for a URL may hold a password.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cacheupdater.config import frameworks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cacheupdater.config.models import FrameworkSection, NamespaceSection, SourceSection
    from cacheupdater.config.settings import Config

RESTART = {
    "listen": "listen",
    "queue": "queue",
    "cache": "cache",
    "admin": "admin",
    "admin_token": "admin.token_file",
    "state": "state",
    "fleet": "fleet",
    "log_keys": "log_keys",
}
"""Fields of `Config`, with the settings that people write."""

_SPENDING = ("budget", "db_time", "burst", "least_gain")

_SPELLINGS = ("value.numbers", "value.times")
_FORMS = ("value.encoding", *_SPELLINGS, "value.columns", "load.rows")
_FRAMEWORK = ("kind", "serializer", "protocol")
"""The settings of a namespace by which the same rows become other values."""

Changed: TypeAlias = "tuple[str, str | None, str | None]"
"""A setting, what it was, and what it is. None: it is not set."""

WARNINGS_MAX = 20  # lines; a default may reach thousands of namespaces


class Difference(NamedTuple):
    """Names such as `sources.shop` and `namespaces.product`."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    """Settings that need a restart."""
    spending: bool = False
    """Whether nothing else has changed than what sources may spend, so that no partition need change hands."""
    forms: tuple[str, ...] = ()
    """Of `changed`, the namespaces whose values are written in another form."""

    def __str__(self) -> str:
        parts = zip(("added", "changed", "removed"), (self.added, self.changed, self.removed), strict=True)
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names) or "no change"


def difference(running: Config, read: Config) -> Difference:
    """What `read` changes in an updater that runs with `running`."""
    added, changed, removed = [], [], []
    for section, was, now in (
        ("sources", running.sources, read.sources),
        ("namespaces", running.namespaces, read.namespaces),
    ):
        added += [f"{section}.{name}" for name in now if name not in was]
        removed += [f"{section}.{name}" for name in was if name not in now]
        changed += [f"{section}.{name}" for name in _both(was, now) if was[name] != now[name]]
    restart = [said for field, said in RESTART.items() if getattr(running, field) != getattr(read, field)]
    spending = not (added or removed) and all(
        name.startswith("sources.") and _only_spends(*_of(name, running, read)) for name in changed
    )
    settings = (each for name in changed for each in _settings_of_form(name, running, read))
    forms = reformed(settings, read.namespaces)
    return Difference(tuple(added), tuple(changed), tuple(removed), tuple(restart), spending, forms)


def reformed(changed: Iterable[Changed], namespaces: Mapping[str, NamespaceSection]) -> tuple[str, ...]:
    """The namespaces whose values are written in another form after these changes. `namespaces` are those after them."""
    by_name: dict[str, list[Changed]] = {}
    for setting, was, now in changed:
        section, _, rest = setting.partition(".")
        name, _, own = rest.partition(".")
        if section == "namespaces":
            by_name.setdefault(name, []).append((own, was, now))
    found = (name for name, own in by_name.items() if _has_another_form(own, namespaces[name]))
    return tuple(f"namespaces.{name}" for name in found)


def warnings(forms: Sequence[str]) -> Iterator[str]:
    """What follows for applications where values are written in another form."""
    for name in forms[:WARNINGS_MAX]:
        yield (
            f"{name}: its values in Redis that cacheupdater wrote are replaced one by one in the new form,"
            " so the application must be able to read both forms"
        )
    if len(forms) > WARNINGS_MAX:
        yield f"the same holds for {len(forms) - WARNINGS_MAX} more namespaces"


def _has_another_form(changed: Sequence[Changed], namespace: NamespaceSection) -> bool:
    """Whether the namespace's values are written in another form. A default that is now said is none."""
    forms, usual = _forms_of(namespace), _usual_of(namespace.framework)
    return any(
        own in forms and (was or usual.get(own)) != (now or usual.get(own)) for own, was, now in changed
    )


def _forms_of(namespace: NamespaceSection) -> frozenset[str]:
    """The settings that say how this namespace's values are written. `raw` spells nothing, whatever `defaults` say."""
    void = _SPELLINGS if namespace.encoding == "raw" else ()
    return frozenset((*_FORMS, *(f"framework.{each}" for each in _FRAMEWORK))).difference(void)


def _usual_of(framework: FrameworkSection | None) -> Mapping[str, str]:
    """The defaults of a framework's settings."""
    if framework is None:
        return {}
    serializer, protocol = frameworks.SERIALIZERS[framework.kind][0], frameworks.PROTOCOLS[framework.kind]
    return {"framework.serializer": serializer, "framework.protocol": str(protocol)}


def _settings_of_form(name: str, running: Config, read: Config) -> Iterator[Changed]:
    """The changed settings of this section that say how values are written."""
    section, _, own = name.partition(".")
    if section != "namespaces":
        return
    was, now = running.namespaces[own], read.namespaces[own]
    for each in _FORMS:
        of = attrgetter(each)
        if of(was) != of(now):
            yield f"{name}.{each}", str(of(was)), str(of(now))
    for each in _FRAMEWORK:
        before, after = getattr(was.framework, each, None), getattr(now.framework, each, None)
        if before != after:
            yield f"{name}.framework.{each}", _text(before), _text(after)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _both(
    was: Mapping[str, SourceSection] | Mapping[str, NamespaceSection],
    now: Mapping[str, SourceSection] | Mapping[str, NamespaceSection],
) -> Iterator[str]:
    return (name for name in was if name in now)


def _of(name: str, running: Config, read: Config) -> tuple[SourceSection, SourceSection]:
    _, _, source = name.partition(".")
    return running.sources[source], read.sources[source]


def _only_spends(was: SourceSection, now: SourceSection) -> bool:
    """Whether only its rate has changed. A budget of another unit needs another bucket."""
    if (was.budget is None) != (now.budget is None):
        return False
    return was == now.model_copy(update={field: getattr(was, field) for field in _SPENDING})
