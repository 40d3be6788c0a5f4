"""Makes or removes what the feeds of a configuration need in their databases, and says what is left to a person: `cacheupdater changes`.

Each function goes through the sources that have a feed and are used, and lives as long as its command. What a kind of feed needs is the
business of its adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from cacheupdater.errors import Misconfigured
from cacheupdater.service.feeds_by_kind import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Installable, Lack

T = TypeVar("T")


class Told(NamedTuple, Generic[T]):
    """What a command has to tell of one source."""

    source: str
    kind: str
    what: Sequence[T]  # statements that were run, or would be; or what the feed lacks


def install(config: Config) -> AsyncIterator[Told[str]]:
    """Makes what is missing."""
    return _each(config, lambda feed: feed.install())


def lacks(config: Config) -> AsyncIterator[Told[Lack]]:
    """What is missing now: after `install`, what that does not make."""
    return _each(config, lambda feed: feed.lacks())


def remove(config: Config) -> AsyncIterator[Told[str]]:
    """Removes all of it."""
    return _each(config, lambda feed: feed.remove())


def script(config: Config) -> AsyncIterator[Told[str]]:
    """What `install` would run."""
    return _each(config, lambda feed: feed.script())


def removal(config: Config) -> AsyncIterator[Told[str]]:
    """What `remove` would run."""
    return _each(config, lambda feed: feed.removal())


async def _each(
    config: Config, work: Callable[[Installable], Awaitable[Sequence[T]]]
) -> AsyncIterator[Told[T]]:
    """One source after the other, so a person sees what was run before a source that fails."""
    if not config.feeds:
        raise Misconfigured(
            "no namespace says `changes:`, so no feed is needed; docs/how-to/feeds.md shows how to write one"
        )
    for name, source in config.sources.items():
        if source.changes is None or name not in config.fed:
            continue
        async with opened(config, source) as feed:
            what = await work(feed)
        yield Told(name, source.changes.kind, what)
