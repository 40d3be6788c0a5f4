"""Checks a source's feed and the changes of its namespaces together: each change must make keys, and its feed must exist.

`load` calls `check_feeds` with the sections that are well formed. What the database lacks, `check --connect` finds.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from cacheupdater.config.feeds import FeedSection
from cacheupdater.config.units import shown
from cacheupdater.core import database_url
from cacheupdater.core.statements import dialect_of, selecting
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.config.document import Document
    from cacheupdater.config.feeds import ChangeSection
    from cacheupdater.config.models import NamespaceSection, SourceSection
    from cacheupdater.config.problems import Path

_KINDS = ", ".join(FeedSection.model_fields)


def check_feeds(
    document: Document, sources: Mapping[str, SourceSection], namespaces: Mapping[str, NamespaceSection]
) -> None:
    """Refuses feeds that cannot be read, and changes that nobody tells or that make no key."""
    for name, source in sources.items():
        if source.changes is not None:
            _check_feed(document, name, source, source.changes)
    for name, one in namespaces.items():
        source = sources.get(one.load.source)
        for at, change in enumerate(one.changes):
            if source is not None:
                _check_change(document, ("namespaces", name, "changes", at), one, change, source)
    used = {one.load.source for one in namespaces.values() if one.changes}
    for name, source in sources.items():
        if source.changes is not None and name not in used:
            document.warn(
                ("sources", name, "changes"), "has no effect: no namespace of this source says `changes:`"
            )


def _check_feed(document: Document, name: str, source: SourceSection, feed: FeedSection) -> None:
    path: Path = ("sources", name, "changes")
    said = [kind for kind in FeedSection.model_fields if getattr(feed, kind)]
    if len(said) != 1:
        has = f"has {' and '.join(said)}" if said else "names no feed"
        document.refuse(path, f"{has}; write one of {_KINDS}, such as `changes: replication`")
    elif source.url is None:
        document.refuse(path, f"source {shown(name)} has no url, and its database must be asked for changes")
    elif said[0] != "poll" and (database := database_url.parts(source.url.reveal()).database) != "postgresql":
        document.refuse(path, f"{said[0]} is for PostgreSQL, and this source is {database}; use poll")


def _check_change(
    document: Document, path: Path, one: NamespaceSection, change: ChangeSection, source: SourceSection
) -> None:
    if source.changes is None:
        document.refuse(
            path,
            f"nobody tells it: source {shown(source.name)} has no feed; write `changes: replication` there,"
            f" or another of {_KINDS}",
        )
        return
    if change.sql and change.key:
        document.refuse(path, "has key and sql; a statement finds the keys by itself, so remove key")
    elif change.sql:
        _check_statement(document, (*path, "sql"), change.sql, source)
    else:
        _check_key(document, (*path, "key"), one, change.key or {})
    if source.changes.poll and not change.column:
        document.refuse(
            path, "needs column for poll: the time of a row's last change, such as column: updated_at"
        )
    elif change.column and not source.changes.poll:
        document.refuse(
            (*path, "column"), f"is for poll; {source.changes.kind} tells changes without it, so remove it"
        )


def _check_statement(document: Document, path: Path, sql: str, source: SourceSection) -> None:
    scheme = source.url.scheme.partition("+")[0] if source.url else "postgresql"
    try:
        selecting(sql, dialect_of(scheme))
    except Misconfigured as e:
        document.refuse(path, str(e))


def _check_key(document: Document, path: Path, one: NamespaceSection, key: Mapping[str, str]) -> None:
    captures = one.pattern.names
    for capture in key:
        if capture not in captures:
            close = get_close_matches(capture, captures, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"it has {', '.join(captures)}"
            document.refuse((*path, capture), f"the key has no such capture; {hint}", key=True)
