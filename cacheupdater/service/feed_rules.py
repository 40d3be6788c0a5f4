"""What the namespaces of a source say about its changes, as the rules of its feed.

`feeding` makes keys by them. `installing` and `feed_check` ask which tables and columns a feed must tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.statements import dialect_of, selecting
from cacheupdater.feeds.row_keys import Direct, Lookup, RowKeys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cacheupdater.config.feeds import ChangeSection
    from cacheupdater.config.models import NamespaceSection, SourceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Watched
    from cacheupdater.feeds.row_keys import Rule


def rules_of(config: Config, source: str) -> Iterator[tuple[Rule, ChangeSection]]:
    """What the namespaces of this source say about changes, with the statements numbered."""
    number = 0
    for each in config.namespaces.values():
        if each.load.source != source:
            continue
        for change in each.changes:
            yield _rule(config.sources[source], each, change, number), change
            number += 1


def _rule(source: SourceSection, one: NamespaceSection, change: ChangeSection, number: int) -> Rule:
    if change.sql is None:
        return Direct(change.table, one.name, one.pattern, change.columns(one.pattern.names))
    scheme = source.url.scheme.partition("+")[0] if source.url else ""
    return Lookup(change.table, one.name, one.pattern, selecting(change.sql, dialect_of(scheme)), number)


def watched(config: Config, source: str) -> Sequence[Watched]:
    """The tables and columns that the feed of this source must tell."""
    return RowKeys([rule for rule, _ in rules_of(config, source)]).watched
