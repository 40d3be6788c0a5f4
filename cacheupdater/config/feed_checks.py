"""Checks a source's feed and the changes of its namespaces together: each change must make keys, and its feed must exist.

`load` calls `check_feeds` with the sections that are well formed. What the database lacks, `check --connect` finds.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

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
        if one.load.source in sources:
            for at, change in enumerate(one.changes):
                _Checks(document, ("namespaces", name, "changes", at), one, sources[one.load.source]).check(
                    change
                )
    _check_columns(document, namespaces)
    used = {one.load.source for one in namespaces.values() if one.changes}
    for name, source in sources.items():
        if source.changes is not None and name not in used:
            document.warn(
                ("sources", name, "changes"), "has no effect: no namespace of this source says `changes:`"
            )


def _check_columns(document: Document, namespaces: Mapping[str, NamespaceSection]) -> None:
    """A table is polled by one column, whatever it concerns."""
    polled: dict[tuple[str, str], str] = {}
    for name, one in namespaces.items():
        for at, change in enumerate(one.changes):
            column = polled.setdefault((one.load.source, change.table), change.column or "")
            if change.column and column != change.column:
                document.refuse(
                    ("namespaces", name, "changes", at, "column"),
                    f"{change.table} is polled by {shown(column)} elsewhere in this file; write the same column here",
                )


def _check_feed(document: Document, name: str, source: SourceSection, feed: FeedSection) -> None:
    path: Path = ("sources", name, "changes")
    said = [kind for kind in FeedSection.model_fields if getattr(feed, kind)]
    if len(said) != 1:
        has = f"has {' and '.join(said)}" if said else "names no feed"
        document.refuse(path, f"{has}; write one of {_KINDS}, such as `changes: replication`")
    elif feed.debezium:
        return  # Kafka is asked, whatever the database is
    elif source.url is None:
        document.refuse(path, f"source {shown(name)} has no url, and its database must be asked for changes")
    elif said[0] != "poll" and (database := database_url.parts(source.url.reveal()).database) != "postgresql":
        document.refuse(
            path, f"{said[0]} is for PostgreSQL, and this source is {database}; use poll or debezium"
        )


class _Checks(NamedTuple):
    """The checks of one change, which stands at `path`."""

    document: Document
    path: Path
    one: NamespaceSection
    source: SourceSection

    def check(self, change: ChangeSection) -> None:
        feed = self.source.changes
        if feed is None:
            self._refuse(
                f"nobody tells it: source {shown(self.source.name)} has no feed; write `changes: replication` there,"
                f" or another of {_KINDS}",
            )
            return
        if change.sql and change.key:
            self._refuse("has key and sql; a statement finds the keys by itself, so remove key")
        elif change.sql and self.source.url is None:
            self._refuse("runs on the source's database, and the source has no url", "sql")
        elif change.sql:
            self._check_statement(change.sql)
        else:
            self._check_key(change.key or {})
        if feed.poll and not change.column:
            self._refuse("needs column for poll: the time of a row's last change, such as column: updated_at")
        elif change.column and not feed.poll:
            self._refuse(f"is for poll; {feed.kind} tells changes without it, so remove it", "column")

    def _refuse(self, problem: str, *place: str, key: bool = False) -> None:
        self.document.refuse((*self.path, *place), problem, key=key)

    def _check_statement(self, sql: str) -> None:
        scheme = self.source.url.scheme.partition("+")[0] if self.source.url else "postgresql"
        try:
            selecting(sql, dialect_of(scheme))
        except Misconfigured as e:
            self._refuse(str(e), "sql")

    def _check_key(self, key: Mapping[str, str]) -> None:
        captures = self.one.pattern.names
        for capture in key:
            if capture not in captures:
                close = get_close_matches(capture, captures, n=1)
                hint = f'did you mean "{close[0]}"?' if close else f"it has {', '.join(captures)}"
                self._refuse(f"the key has no such capture; {hint}", "key", capture, key=True)
