"""Makes or removes what the feeds of a configuration need in their databases: `cacheupdater changes`.

Each function goes through the sources that have a feed and are used, and lives as long as its command. What a kind of feed needs is the
business of its adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cacheupdater.errors import Misconfigured
from cacheupdater.service.feeds_by_kind import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Installable


class Ran(NamedTuple):
    """What was run for one source, or would be."""

    source: str
    kind: str
    statements: Sequence[str]


Work: TypeAlias = "Callable[[Config], AsyncIterator[Ran]]"


def install(config: Config) -> AsyncIterator[Ran]:
    """Makes what is missing."""
    return _each(config, lambda feed: feed.install())


def remove(config: Config) -> AsyncIterator[Ran]:
    """Removes all of it."""
    return _each(config, lambda feed: feed.remove())


def script(config: Config) -> AsyncIterator[Ran]:
    """What `install` would run."""
    return _each(config, lambda feed: feed.script())


def removal(config: Config) -> AsyncIterator[Ran]:
    """What `remove` would run."""
    return _each(config, lambda feed: feed.removal())


async def _each(
    config: Config, work: Callable[[Installable], Awaitable[Sequence[str]]]
) -> AsyncIterator[Ran]:
    """One source after the other, so a person sees what was run before a source that fails."""
    if not config.feeds:
        raise Misconfigured(
            "no namespace says `changes:`, so no feed is needed; docs/how-to/feeds.md shows how to write one"
        )
    for name, source in config.sources.items():
        if source.changes is None or name not in config.fed:
            continue
        async with opened(config, source) as feed:
            statements = await work(feed)
        yield Ran(name, source.changes.kind, statements)
