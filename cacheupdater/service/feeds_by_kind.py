"""Which adapter reads the feed of a source, by the kind that the configuration names.

`feeding` asks for the feed that a process reads, `installing` and `feed_check` for one to prepare or to check. Nothing is opened before it is used.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cacheupdater.config.models import SourceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Feed, Installable, Watched


def feed_of(config: Config, source: SourceSection, watched: Sequence[Watched]) -> Feed:
    """The feed of this source."""
    raise NotImplementedError


@asynccontextmanager
async def opened(config: Config, source: SourceSection) -> AsyncIterator[Installable]:
    """The same, to be prepared or checked."""
    raise NotImplementedError
    yield
