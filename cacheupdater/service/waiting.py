"""Names the settings of a reread configuration that must wait for the updater's next start.

`Service.reload` logs these names. Otherwise an operator who edits a pattern and sends SIGHUP would take silence for a yes. The
functions are pure. They name settings and no values, for a URL may hold a password.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cacheupdater.config.models import NamespaceSection, SourceSection
    from cacheupdater.config.settings import Config

_BY_NAME = ("sources", "namespaces")
_TAKEN_OVER = ("budget", "db_time", "burst", "least_gain")


def waiting(running: Config, read: Config) -> Iterator[str]:
    """The names of changed settings, such as `cache`, `sources.shop` and `namespaces.product`."""
    for field in fields(running):
        own = field.compare and field.name not in _BY_NAME
        if own and getattr(running, field.name) != getattr(read, field.name):
            yield field.name
    yield from _named("sources", running.sources, _with_budgets_of(running.sources, read.sources))
    yield from _named("namespaces", running.namespaces, read.namespaces)


def _with_budgets_of(
    running: Mapping[str, SourceSection], read: Mapping[str, SourceSection]
) -> Mapping[str, SourceSection]:
    """The sources as read, but with the running values of the settings that SIGHUP takes over: these need not wait."""
    return {
        name: each.model_copy(update={field: getattr(known, field) for field in _TAKEN_OVER})
        if (known := running.get(name))
        else each
        for name, each in read.items()
    }


def _named(
    section: str,
    running: Mapping[str, SourceSection] | Mapping[str, NamespaceSection],
    read: Mapping[str, SourceSection] | Mapping[str, NamespaceSection],
) -> Iterator[str]:
    for name in dict.fromkeys([*running, *read]):
        if running.get(name) != read.get(name):
            yield f"{section}.{name}"
