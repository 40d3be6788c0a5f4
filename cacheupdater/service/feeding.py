"""The feeds of a configuration, beside the partitions: makes a reader for each, and runs them until the process ends.

`Service` runs `Feeding.run` as long as hints are accepted. Every updater has all readers of its configuration, and the feeds give the
turns. After a reload, the readers of the former configuration stop, and those of the present one start. What they had not confirmed
comes again. `feeds` knows how a feed is read; here is only what it is made of.
"""

from __future__ import annotations

import asyncio
import time
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.adapters.loader_sql import SqlFinder
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.config.queues import producer_url
from cacheupdater.errors import Misconfigured
from cacheupdater.feeds.lookups import Lookups
from cacheupdater.feeds.reader import Reader, Told
from cacheupdater.feeds.row_keys import Lookup, RowKeys
from cacheupdater.feeds.sinks import MemorySink, SharedSink
from cacheupdater.service.feed_rules import rules_of
from cacheupdater.service.feeds_by_kind import feed_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.config.settings import Config
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.feeds.sinks import Sink
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer, Queue
    from cacheupdater.service.components import Components
    from cacheupdater.service.generation import Generation


class Purse(NamedTuple):
    """`lookups.Paying`: the source's budget, for a namespace."""

    namespace: Namespace

    def when(self) -> float:
        bucket = self.namespace.source.bucket
        bucket.level(asyncio.get_running_loop().time())
        return bucket.when(min(1.0, bucket.burst))

    def take(self, rows: int) -> None:
        self.namespace.source.bucket.take(rows * self.namespace.cost.per_row)


class Feeding:
    """All feeds of one process."""

    def __init__(self, queue: Queue, *, observer: Observer, notices: Notices) -> None:
        self._queue = queue
        self._observer = observer
        self._notices = notices
        self._turn = asyncio.Event()  # set by a reload
        self._readers: dict[str, Reader] = {}  # of the present configuration, by source
        self._config: Config | None = None

    def plain(self, now: float) -> list[dict[str, object]]:
        """What is known of each feed, for a page."""
        sources = self._config.sources if self._config else {}
        kinds = {name: each.changes.kind for name, each in sources.items() if each.changes}
        return [
            {"source": name, "kind": kinds[name], **_plain(each.told, now)}
            for name, each in self._readers.items()
        ]

    def turn_over(self) -> None:
        """There is another configuration."""
        self._turn.set()

    async def run(self, present: Callable[[], Generation], partitions: int) -> None:
        """Until it is cancelled. `present` is the generation whose feeds are read."""
        sink: MemorySink | SharedSink | None = None
        forwarding: asyncio.Task[None] | None = None
        try:
            while True:
                self._turn.clear()
                now = present()
                if sink is None and now.config.feeds:
                    sink = self._sink(now.config, partitions)
                    if isinstance(sink, SharedSink):
                        forwarding = asyncio.ensure_future(sink.run())
                self._config = now.config
                self._readers = _readers(now.components, sink) if sink else {}
                await self._read()
        finally:
            if forwarding is not None:
                forwarding.cancel()
                await asyncio.gather(forwarding, return_exceptions=True)

    def _sink(self, config: Config, partitions: int) -> MemorySink | SharedSink:
        if isinstance(self._queue, MemoryQueue):
            return MemorySink(self._queue, partitions)
        try:
            return SharedSink(producer_url(config.queue), observer=self._observer, notices=self._notices)
        except ValueError as e:
            raise Misconfigured(f"no changes can be put on the queue: {e}") from e

    async def _read(self) -> None:
        """Runs the readers until the next reload."""
        wall = time.time  # noqa: TID251  the clock that dates commits
        tasks = [
            asyncio.ensure_future(each.run(self._observer, self._notices, wall))
            for each in self._readers.values()
        ]
        turning = asyncio.ensure_future(self._turn.wait())
        try:
            done, _ = await asyncio.wait([turning, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (turning, *tasks):
                task.cancel()
            await asyncio.gather(turning, *tasks, return_exceptions=True)


def _plain(told: Told, now: float) -> dict[str, object]:
    spoke = now - told.spoke
    return {
        "reads": told.reads,
        "spoke_s": round(spoke, 1) if isfinite(spoke) else None,
        "lag_s": told.lag,
        "waiting": told.waiting,
    }


def _readers(components: Components, sink: Sink) -> dict[str, Reader]:
    config = components.config
    found: dict[str, Reader] = {}
    for name, source in config.sources.items():
        rules = list(rules_of(config, name))
        if not rules:
            continue
        row_keys = RowKeys([rule for rule, _ in rules])
        finders = {
            rule.number: SqlFinder(components.database(source), change.sql, rule.column, rule.pattern.names)
            for rule, change in rules
            if isinstance(rule, Lookup) and change.sql
        }
        found[name] = Reader(
            name,
            feed_of(config, source),
            row_keys,
            sink=sink,
            lookups=Lookups(finders, lambda namespace: Purse(components.by_name[namespace])),
            redis=components.redis(),
        )
    return found
