"""What the feeds of a configuration lack in their databases, for `cacheupdater check --connect`.

`connection_check` calls `feeds` beside its other visits. It changes nothing. Each lack comes with the statements that mend it, unless
they are too long for a table. The statements of `changes` are tried with a value that no row has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.adapters.loader_sql import SqlFinder
from cacheupdater.errors import CacheUpdaterError, Unavailable
from cacheupdater.feeds.row_keys import Lookup
from cacheupdater.service.feed_rules import rules_of
from cacheupdater.service.feeds_by_kind import opened
from cacheupdater.service.findings import NOBODY, Finding, plain, trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.config.models import SourceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.feed_ports import Lack
    from cacheupdater.service.components import Components

SQL_MAX = 500  # characters of statements in one finding: triggers and their function take thousands
FEED_S = 15.0  # seconds for the questions about one feed, which take milliseconds


async def feeds(config: Config, components: Components) -> Sequence[Finding]:
    """The findings about all feeds that are used."""
    found = await asyncio.gather(
        *(
            _feed(config, source)
            for name, source in config.sources.items()
            if source.changes and name in config.fed
        )
    )
    tried = [await _statements(components, name) for name in config.sources if name in config.fed]
    return [finding for each in (*found, *tried) for finding in each]


async def _statements(components: Components, name: str) -> Sequence[Finding]:
    """Those statements of `changes` that cannot find keys: otherwise the first change would show that."""
    config, found = components.config, []
    for rule, change in rules_of(config, name):
        if isinstance(rule, Lookup) and change.sql:
            database = components.database(config.sources[name])
            error = await _tried(SqlFinder(database, change.sql, rule.column, rule.pattern.names))
            if error is not None:
                what = trouble("feed", name, error)
                found.append(what._replace(what=f"{rule.namespace}, changes of {rule.table}: {what.what}"))
    return found


async def _tried(finder: SqlFinder) -> CacheUpdaterError | None:
    """The error of a statement that runs with no type of value. Only the database knows which one the column has."""
    errors: list[CacheUpdaterError] = []
    for value in NOBODY.values():
        try:
            await finder.find([value])
        except Unavailable as e:
            return e
        except CacheUpdaterError as e:
            errors.append(e)
        else:
            return None
    return errors[0]


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
    if len(mended) > SQL_MAX:
        mended = "; `cacheupdater changes install --print` shows the statements that mend it"
    return Finding("feed", name, "wrong" if lack.grave else "note", plain(f"{lack.what}{mended}"))
