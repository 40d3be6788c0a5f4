"""Reads one feed: makes keys of its changes, puts them on the queue, and confirms what is safe there.

The service runs one `Reader` per feed. Each updater of a group has one; the feed gives the turn to one of them. An error ends the
turn, and after a pause the reader asks for it again. So what was not confirmed comes again, here or in another updater. A change that
comes twice costs a look more, and nothing is ever lost. While the queue has no room the feed is not read any further, so the source
keeps what waits.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.words import counted
from cacheupdater.errors import CacheUpdaterError, Unavailable, first_error
from cacheupdater.feed_ports import SILENCE_MAX
from cacheupdater.feeds.ledger import Ledger
from cacheupdater.feeds.lookups import GivenUp
from cacheupdater.feeds.sweep import Sweeps, Swept

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.feed_ports import Batch, Feed, Skipped
    from cacheupdater.feeds.ledger import Safe
    from cacheupdater.feeds.lookups import Lookups
    from cacheupdater.feeds.row_keys import RowKeys
    from cacheupdater.feeds.sinks import Sink
    from cacheupdater.feeds.sweep import Scanning
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer

REST_S = 1.0  # after an error, before the turn is asked for again
SILENCE_S = 3 * SILENCE_MAX  # after which a feed counts as lost
CONFIRM_EVERY_S = (
    0.1  # a confirmation costs the source a message or a statement, and what waits for it costs disk
)
BATCHES_MAX = 10_000  # that are not confirmed; then the feed is read no further
WAITING_EVERY_S = 5.0  # between two questions how much waits at the source


UNMAPPED_S = (
    60.0  # without a row that tells no key, until that trouble is over: others come and go between such rows
)


class Told(NamedTuple):
    """What a feed tells about itself, for people."""

    reads: bool = False  # whether this process has the turn
    spoke: float = float("-inf")  # when the feed last said anything, by the loop's clock
    lag: float | None = None  # seconds from the last commit until its change was read here
    waiting: int | None = None  # at the source: see `Feed.waiting`


class Reader:
    """The reader of one feed."""

    def __init__(
        self,
        source: str,
        feed: Feed,
        row_keys: RowKeys,
        *,
        sink: Sink,
        lookups: Lookups,
        redis: Scanning,
    ) -> None:
        self.source = source
        self.told = Told()
        self._feed = feed
        self._row_keys = row_keys
        self._sink = sink
        self._lookups = lookups
        self._sweeps = Sweeps(redis)
        self._ledger = Ledger()
        self._unmapped_until = inf  # when the trouble of rows that tell no key is over

    @property
    def namespaces(self) -> Sequence[str]:
        """Those whose changes this feed tells."""
        return self._row_keys.namespaces

    async def run(self, observer: Observer, notices: Notices, wall: Callable[[], float]) -> None:
        """Until it is cancelled."""
        while True:
            self._rests(observer)
            try:
                await self._feed.start()
                await self._read(observer, notices, wall)
            except CacheUpdaterError as e:
                _end_if_cancelled()
                self._rests(observer)
                notices.trouble(
                    "feed_down", self.source, f"the changes of source {self.source} cannot be read: {e}"
                )
            finally:
                self._forget(notices)
                await self._feed.stop()
            await asyncio.sleep(REST_S)

    def _rests(self, observer: Observer) -> None:
        """Another may have the turn. Whoever is cancelled says nothing: a reload may have removed the feed, with its series."""
        self.told = self.told._replace(reads=False, waiting=None)
        observer.level("feed_reads", 0.0, label=self.source)
        observer.level("feed_waiting", 0.0, label=self.source)  # whoever reads now knows

    async def _read(self, observer: Observer, notices: Notices, wall: Callable[[], float]) -> None:
        self.told = self.told._replace(reads=True)
        observer.level("feed_reads", 1.0, label=self.source)
        try:
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self._confirm(notices)), group.create_task(self._ask(observer))]
                await self._take(observer, notices, wall)
                for task in beside:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors

    async def _take(self, observer: Observer, notices: Notices, wall: Callable[[], float]) -> None:
        batches = self._feed.batches()
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    batch = await anext(batches)
            except TimeoutError:
                raise Unavailable(f"the feed has been silent for {SILENCE_S:g} s") from None
            except StopAsyncIteration:
                raise Unavailable("the feed has ended") from None
            notices.over("feed_down", self.source)
            self.told = self.told._replace(spoke=clock())
            if batch.changes:
                self._note(batch, observer, wall())
            self._note_lacks(batch.lacks, notices)
            for skipped in batch.skipped:
                self._note_skipped(skipped, observer, notices)
            if batch.changes and not batch.skipped:
                notices.over("feed_skipped", self.source)
            safe = await self._put(batch, observer, notices)
            self._ledger.add(safe, batch.position)
            # a feed that has much to tell waits for nothing, and others must have their turn
            await asyncio.sleep(0)
            while len(self._ledger) >= BATCHES_MAX:  # noqa: ASYNC110  confirmed by the clock, not by an event
                await asyncio.sleep(CONFIRM_EVERY_S)

    def _note(self, batch: Batch, observer: Observer, now: float) -> None:
        observer.count("feed_changes", len(batch.changes), label=self.source)
        if batch.committed is not None:
            lag = max(0.0, now - batch.committed)
            self.told = self.told._replace(lag=lag)
            observer.measure("feed_lag_seconds", lag, label=self.source)

    def _note_lacks(self, lacks: Sequence[str], notices: Notices) -> None:
        if lacks:
            notices.trouble("feed_lacks", self.source, ". ".join(lacks))
        else:
            notices.over("feed_lacks", self.source)

    def _note_skipped(self, skipped: Skipped, observer: Observer, notices: Notices) -> None:
        observer.count("feed_skipped", skipped.records, label=self.source, reason=skipped.reason)
        notices.trouble(
            "feed_skipped",
            self.source,
            f"{counted(skipped.records, 'record')} passed over, with no change that can be read ({skipped.reason});"
            f" the last one lies in {skipped.where}",
        )

    def _note_unmapped(self, rows: Mapping[str, int], observer: Observer, notices: Notices) -> None:
        total = sum(rows.values())
        observer.count("feed_unmapped", total, label=self.source)
        self._unmapped_until = asyncio.get_running_loop().time() + UNMAPPED_S
        notices.trouble(
            "feed_unmapped",
            self.source,
            f"{counted(total, 'changed row')} of {', '.join(rows)} told no key of a namespace, so their values stay as they are:"
            " a column of the key was not told (`REPLICA IDENTITY`), or its content cannot stand in a key",
        )

    async def _put(self, batch: Batch, observer: Observer, notices: Notices) -> list[Safe]:
        """The keys of one batch are on their way."""
        stamp = round((batch.committed or 0.0) * 1e6) or 1
        put = partial(self._keys, stamp=stamp, observer=observer)
        concerned = self._row_keys.of(batch.changes)
        if concerned.unmapped:
            self._note_unmapped(concerned.unmapped, observer, notices)
        safe = [await put(list(concerned.keys))] if concerned.keys else []
        swept: dict[str, Swept] = {}
        for lookup, values in concerned.lookups.items():
            try:
                safe += [await put(keys) async for keys in self._lookups.find(lookup, list(values))]
            except GivenUp as e:
                why = (
                    f"the keys of {lookup.namespace} that changes of {lookup.table} concern cannot be found,"
                    f" so all of them count as changed: {e}"
                )
                swept[lookup.namespace] = Swept(lookup.pattern, why)
        for namespace, each in (swept | self._emptied(batch)).items():
            safe += await self._sweeps.begin(namespace, each, put=put, notices=notices)
        return safe

    def _emptied(self, batch: Batch) -> dict[str, Swept]:
        """The namespaces of the tables of which any row may have changed."""
        swept: dict[str, Swept] = {}
        for table in batch.emptied:
            cause = batch.why or f"{table} was truncated"
            for namespace, pattern in self._row_keys.patterns_of(table).items():
                swept[namespace] = Swept(
                    pattern, f"all keys of {namespace} in Redis count as changed: {cause}"
                )
        return swept

    async def _keys(self, keys: Sequence[bytes], stamp: int, observer: Observer) -> Safe:
        observer.count("feed_keys", len(keys), label=self.source)
        return await self._sink.put(dict.fromkeys(keys, stamp))

    async def _confirm(self, notices: Notices) -> None:
        while True:
            await asyncio.sleep(CONFIRM_EVERY_S)
            self._sweeps.settle(notices)
            if asyncio.get_running_loop().time() >= self._unmapped_until:
                self._mapped(notices)
            position = self._ledger.take()
            if position is not None:
                await self._feed.confirm(position)

    async def _ask(self, observer: Observer) -> None:
        """How much waits at the source."""
        while True:
            waiting: int | None = None
            with suppress(CacheUpdaterError):  # if the source does not answer, the feed says so
                waiting = await self._feed.waiting()
            self.told = self.told._replace(waiting=waiting)
            if waiting is not None:
                observer.level("feed_waiting", waiting, label=self.source)
            await asyncio.sleep(WAITING_EVERY_S)

    def _mapped(self, notices: Notices) -> None:
        self._unmapped_until = inf
        notices.over("feed_unmapped", self.source)

    def _forget(self, notices: Notices) -> None:
        """What was not confirmed comes again, perhaps to another updater. The other one then says what is wrong with the feed."""
        notices.over("feed_lacks", self.source)
        notices.over("feed_skipped", self.source)
        self._mapped(notices)
        self._ledger = Ledger()
        self._sweeps.forget(notices)


def _end_if_cancelled() -> None:
    """A task group of Python 3.11 and 3.12 that ends by an error forgets that its task was cancelled meanwhile."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
