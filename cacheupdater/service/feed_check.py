"""What the feeds of a configuration lack in their databases, for `cacheupdater check --connect`.

`connection_check` calls `feeds` beside its other visits. It changes nothing; each lack comes with the statements that mend it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.errors import CacheUpdaterError
from cacheupdater.service.feeds_by_kind import opened
from cacheupdater.service.findings import Finding, plain, trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.config.models import SourceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Lack

FEED_S = 15.0  # seconds for the questions about one feed, which take milliseconds


async def feeds(config: Config) -> Sequence[Finding]:
    """The findings about all feeds that are used."""
    used = {each.load.source for each in config.namespaces.values() if each.changes}
    found = await asyncio.gather(
        *(_feed(config, source) for name, source in config.sources.items() if source.changes and name in used)
    )
    return [finding for each in found for finding in each]


async def _feed(config: Config, source: SourceSection) -> Sequence[Finding]:
    kind = source.changes.kind if source.changes else ""
    try:
        async with asyncio.timeout(FEED_S), opened(config, source) as feed:
            lacks = await feed.lacks()
    except TimeoutError:
        return [Finding("feed", source.name, "away", f"{kind}: no answer within {FEED_S:g} s")]
    except CacheUpdaterError as e:
        return [trouble("feed", source.name, e)]
    if any(each.grave for each in lacks):
        return [_lack(source.name, each) for each in lacks]
    ok = Finding("feed", source.name, "ok", f"{kind}: can be read")
    return [ok, *(_lack(source.name, each) for each in lacks)]


def _lack(name: str, lack: Lack) -> Finding:
    mended = f"; to mend it: {'; '.join(lack.sql)}" if lack.sql else ""
    return Finding("feed", name, "wrong" if lack.grave else "note", plain(f"{lack.what}{mended}"))
