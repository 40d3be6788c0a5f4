"""Makes or removes what the feeds of a configuration need in their databases: `cacheupdater changes`.

Each function goes through the sources that have a feed and are used, and lives as long as its command. What a kind of feed needs is the
business of its adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cacheupdater.errors import Misconfigured
from cacheupdater.service.feeds_by_kind import opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Installable


class Ran(NamedTuple):
    """What was run for one source, or would be."""

    source: str
    kind: str
    statements: Sequence[str]


Work: TypeAlias = "Callable[[Config], Coroutine[None, None, list[Ran]]]"


async def install(config: Config) -> list[Ran]:
    """Makes what is missing."""
    return await _each(config, lambda feed: feed.install())


async def remove(config: Config) -> list[Ran]:
    """Removes all of it."""
    return await _each(config, lambda feed: feed.remove())


async def script(config: Config) -> list[Ran]:
    """What `install` would run."""
    return await _each(config, lambda feed: feed.script())


async def removal(config: Config) -> list[Ran]:
    """What `remove` would run."""
    return await _each(config, lambda feed: feed.removal())


async def _each(config: Config, work: Callable[[Installable], Awaitable[Sequence[str]]]) -> list[Ran]:
    if not config.feeds:
        raise Misconfigured(
            "no namespace says `changes:`, so no feed is needed; docs/how-to/feeds.md shows how to write one"
        )
    ran = []
    for name, source in config.sources.items():
        if source.changes is None or name not in config.fed:
            continue
        async with opened(config, source) as feed:
            ran.append(Ran(name, source.changes.kind, await work(feed)))
    return ran
