"""What has changed between two configurations: by name, and what each change needs.

`reloading` asks before it changes a running updater, and the command `reload --dry-run` shows the answer. Namespaces, sources
and defaults change while the updater runs. The settings in `RESTART` are those of the doors and of the process itself: they
need a restart. The functions are pure. They name settings and show no values, for a URL may hold a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cacheupdater.config.models import NamespaceSection, SourceSection
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


class Difference(NamedTuple):
    """Names such as `sources.shop` and `namespaces.product`."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    """Settings that need a restart."""
    spending: bool = False
    """Whether nothing else has changed than what sources may spend, so that no partition need change hands."""

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
    return Difference(tuple(added), tuple(changed), tuple(removed), tuple(restart), spending)


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
