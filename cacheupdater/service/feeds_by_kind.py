"""Which adapter reads the feed of a source, by the kind that the configuration names.

`feeding` asks for the feed that a process reads, `installing` and `feed_check` for what must exist before. Adapters are imported only
where they are used, for their drivers are extras. Nothing is connected before it is used.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cacheupdater.encryption import Tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cacheupdater.adapters import feed_replication
    from cacheupdater.config.feeds import ReplicationSection
    from cacheupdater.config.models import SourceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Feed, Installable, Watched


def feed_of(config: Config, source: SourceSection, watched: Sequence[Watched]) -> Feed:
    """The feed of this source."""
    feed, _ = _parts(config, source, watched)
    return feed


@asynccontextmanager
async def opened(
    config: Config, source: SourceSection, watched: Sequence[Watched]
) -> AsyncIterator[Installable]:
    """What must exist in this source's database."""
    _, installable = _parts(config, source, watched)
    try:
        yield installable
    finally:
        await installable.close()


def _parts(config: Config, source: SourceSection, watched: Sequence[Watched]) -> tuple[Feed, Installable]:
    said = source.changes
    assert said is not None
    if said.replication:
        from cacheupdater.adapters import feed_replication  # noqa: PLC0415

        settings = _replication(source, said.replication, watched)
        return feed_replication.ReplicationFeed(settings), feed_replication.ReplicationInstallation(settings)
    raise AssertionError("the configuration has been checked")


def _replication(
    source: SourceSection, said: ReplicationSection, watched: Sequence[Watched]
) -> feed_replication.Settings:
    from cacheupdater.adapters.feed_replication import Settings  # noqa: PLC0415

    return Settings(_url(source), said.publication, said.slot, watched, tls=Tls(*source.encryption))


def _url(source: SourceSection) -> str:
    """A source with a feed has a URL: the configuration has been checked."""
    return source.url.reveal() if source.url else ""
