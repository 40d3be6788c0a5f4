"""The feed `poll`: changes of rows in any database that SQLAlchemy reaches, told by a column that grows with each change.

`feeds.reader` reads one `PollFeed` per source. `core.watermark` says which rows to read next and which were told before, `table`
has the statements, and `Marks` keeps how far the feed has come, and whose turn it is. All looks together read no more rows than
`rows_per_second`. Deleted rows are invisible, a changed key is told as it is now, and a transaction that takes longer than the
overlap may be missed.

A feed without a mark begins at the present. A column of numbers does not say when a transaction began, so those that were
under way at that first moment may be missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from cacheupdater.adapters.feed_poll import columns, places
from cacheupdater.adapters.feed_poll.table import Table, found
from cacheupdater.core.watermark import Kept, Row, Watermark
from cacheupdater.errors import CacheUpdaterError, Unavailable
from cacheupdater.feed_ports import LEASE, SILENCE_MAX, Batch, Changed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from cacheupdater.adapters.feed_poll.settings import Database, PollSettings, PollTable
    from cacheupdater.core.watermark import Look
    from cacheupdater.feed_ports import Marks, Position

TURN_S = 0.5  # seconds between two tries to take the turn
RENEWALS = 4  # of the turn within its lease, so that one slow answer loses nothing
SPEAK_S = SILENCE_MAX / 3  # an empty batch after so many seconds, and no statement is paid for longer


class _Polled(NamedTuple):
    """A table, what is known of it, and how far it was read."""

    table: Table
    watched: Sequence[str]
    watermark: Watermark
    mark: str  # the name of its mark


class PollFeed:
    """The changes of some tables of one database."""

    def __init__(self, database: Database, marks: Marks, settings: PollSettings) -> None:
        self._database = database
        self._marks = marks
        self._settings = settings
        self._limit = max(1, min(settings.batch, int(settings.rows_per_second * SPEAK_S)))
        self._tables: deque[_Polled] = deque()
        self._asked = text(columns.ANY_CLOCK)
        self._clock = columns.clock(0.0, None)
        self._read: dict[str, str] = {}  # the marks as of the last batch
        self._kept: Mapping[str, str] = {}
        self._sure = 0.0  # until when the turn is ours for certain, by the loop's clock
        self._renewing: asyncio.Task[None] | None = None
        self._paid = 0.0  # when the budget has paid for all rows that were read, by the loop's clock
        self._stopped = asyncio.Event()
        self._reading = asyncio.Lock()  # held by start and step, so that `stop` closes nothing beneath them

    # --- the port -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """As the port says. It does not wait for the database while another has the turn."""
        await self._end_renewals()
        self._stopped.clear()
        self._kept, self._read = await self._turn(), {}
        self._renewing = asyncio.ensure_future(self._renew())
        try:
            async with self._reading:
                await self._prepare()
        except BaseException:
            await self.stop()
            raise

    async def batches(self) -> AsyncIterator[Batch]:
        """As the port says."""
        loop = asyncio.get_running_loop()
        spoke = loop.time()
        while not self._stopped.is_set():
            async with self._reading:
                batch = await self._step()
            if loop.time() > self._sure:
                raise Unavailable(
                    "the turn to read this feed was lost: Redis is away, or another updater has it"
                )
            if batch.changes or loop.time() - spoke >= SPEAK_S:
                spoke = loop.time()
                yield batch

    async def confirm(self, position: Position) -> None:
        """As the port says."""
        assert isinstance(position, dict)
        news = {name: mark for name, mark in position.items() if self._kept.get(name) != mark}
        if news:
            await self._marks.keep(news)
            self._kept = {**self._kept, **news}

    async def waiting(self) -> int | None:
        """Nobody knows how many rows a look would find."""
        return None

    async def stop(self) -> None:
        """As the port says."""
        self._stopped.set()
        await self._end_renewals()
        async with self._reading:
            await self._marks.leave()  # Redis may have given the turn to a start that was cancelled
            await self._marks.close()
            await self._database.close()

    # --- the turn -------------------------------------------------------------------------------------

    async def _turn(self) -> Mapping[str, str]:
        """Waits for the turn, and returns the marks. Leaves a turn that Redis gives while `stop` runs, for `stop` does not see it."""
        while not self._stopped.is_set():
            kept = await self._taken()
            if kept is not None and not self._stopped.is_set():
                return kept
            await self._rest(TURN_S)
        await self._marks.leave()
        await self._marks.close()
        raise Unavailable("the feed was stopped while it waited for its turn")

    async def _taken(self) -> Mapping[str, str] | None:
        asked = asyncio.get_running_loop().time()
        kept = await self._marks.take()
        self._sure = 0.0 if kept is None else asked + LEASE
        return kept

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE / RENEWALS)
            with suppress(CacheUpdaterError):  # the next time; if none comes in time, `batches` tells
                if await self._taken() is None:
                    return

    async def _end_renewals(self) -> None:
        task, self._renewing = self._renewing, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # --- reading --------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """Looks at the tables, and at how far each was read."""
        dialect = await self._database.inspect(lambda connection: connection.dialect.name)
        self._asked = text(columns.CLOCKS.get(dialect, columns.ANY_CLOCK))
        self._clock = await self._now()
        self._tables = deque([await self._opened(each) for each in self._settings.tables])
        if self._stopped.is_set():
            raise Unavailable("the feed was stopped while it started")
        await self.confirm(self._read)  # so that the next start begins where this one does

    async def _now(self) -> columns.Clock:
        """The database's clock."""
        [[seconds, local]] = (await self._database.query(self._asked))[1]
        return columns.clock(seconds, local)

    async def _opened(self, polled: PollTable) -> _Polled:
        known = await self._database.inspect(lambda connection: found(connection, polled))
        name = f"{known.name} {polled.column}"
        if mark := self._kept.get(name):
            kept = places.read(mark, name)
        else:
            _, rows = await self._database.query(*known.newest(self._clock))
            newest = known.place(rows[0]) if rows else None
            columns.checked(f"{known.name}.{polled.column}", newest and newest.value)
            begin = known.beginning(newest, overlap=self._settings.overlap, now=self._clock)
            kept = Kept(begin, begin)
        watermark = Watermark(
            kept, overlap=self._settings.overlap, every=polled.every, told_max=self._settings.told_max
        )
        self._read[name] = places.written(kept)
        return _Polled(known, polled.watched.columns, watermark, name)

    async def _step(self) -> Batch:
        """One look at one table, or a rest until the next look is due."""
        for _ in range(len(self._tables)):
            polled = self._tables[0]
            self._tables.rotate(-1)
            look = polled.watermark.look(self._clock.seconds)
            if look is not None:
                return await self._looked(polled, look)
        rest = min((each.watermark.wait(self._clock.seconds) for each in self._tables), default=SPEAK_S)
        await self._rest(min(rest, SPEAK_S))
        self._clock = await self._now()
        return Batch((), dict(self._read))

    async def _looked(self, polled: _Polled, look: Look) -> Batch:
        loop = asyncio.get_running_loop()
        await self._rest(self._paid - loop.time())
        asked, parameters = polled.table.statement(look, self._limit)
        _, rows = await self._database.query(asked, parameters)
        self._paid = max(self._paid, loop.time()) + len(rows) / self._settings.rows_per_second
        self._clock = await self._now()
        cells = {}
        seen = []
        for row in rows:
            seen.append(self._seen(polled.table, row))
            cells[seen[-1].place] = row
        new = polled.watermark.found(look, seen, more=len(rows) == self._limit, now=self._clock.seconds)
        self._read[polled.mark] = places.written(polled.watermark.kept)
        changes = [Changed(polled.table.name, [self._told(polled, cells[row.place])]) for row in new]
        times = [row.place.value for row in new if polled.table.kind == "zoned"]
        newest: Any = max(times, default=None)  # type: ignore[type-var]  # all are of one type
        return Batch(changes, dict(self._read), newest and newest.timestamp())

    def _seen(self, table: Table, row: Sequence[Any]) -> Row:
        columns.checked(f"{table.name}.{table.mark.name}", row[0])
        place = table.place(row)
        version: object = row[-1]
        if version is not None:
            version = (place, version)
        elif columns.is_fine(row[0]):
            version = (place, *row[1:])
        return Row(place, version, early=columns.is_early(table.kind, row[0], self._clock))

    def _told(self, polled: _Polled, row: Sequence[Any]) -> dict[str, Any]:
        values = row[1 + len(polled.table.keys) : -1]
        return {name: columns.cell(value) for name, value in zip(polled.watched, values, strict=True)}

    async def _rest(self, seconds: float) -> None:
        if seconds > 0.0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopped.wait()
