"""Takes the slot of a feed when it is free, and makes the slot anew when it is lost.

`feed` makes one `Turn`, and asks it for a stream at each start. The slot itself is the lock: the server lets one process at a
time read a slot, and frees the slot when that process dies. That is stricter than an advisory lock, which a process could hold
while another reads. The others look twice a second whether the slot is free.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.adapters.feed_replication import catalogue, failures, lacking, slot
from cacheupdater.adapters.feed_replication.connections import Questions, driver
from cacheupdater.adapters.feed_replication.stream import Stream
from cacheupdater.errors import CacheUpdaterError, Misconfigured, Unavailable

if TYPE_CHECKING:
    from cacheupdater.adapters.feed_replication.catalogue import Slot, Tables
    from cacheupdater.adapters.feed_replication.settings import Settings

TURN_S = (
    0.5  # seconds between two looks whether the slot is free; a look costs the database one short question
)

_GONE = "the replication slot had gone, and was made anew"
_INVALID = "the replication slot had lost WAL, and was made anew"
_UNPUBLISHED = "the replication slot stood where the publication did not exist, and was made anew"


class Taken(NamedTuple):
    """What a reader begins with."""

    stream: Stream
    place: int  # what is confirmed
    tables: Tables
    lost: str  # why changes were lost, if nothing in the stream will say so


class Turn:
    """The turn of one process at one slot."""

    def __init__(self, settings: Settings, questions: Questions) -> None:
        self._settings = settings
        self._questions = questions
        self._unreadable = ""  # why the slot must be made anew although the server does not say so
        self._lost = ""  # why this process has made the slot anew; others learn that from the WAL

    async def take(self, stopped: asyncio.Event) -> Taken | None:
        """The stream of the slot, once it is ours; None if `stopped` is set before. Raises as `Feed.start` does."""
        driver()
        while not stopped.is_set():
            found = await catalogue.slot(self._questions, self._settings.slot)
            why = self._why_anew(found)
            if why and (found is None or not found.active):
                await self._tables()  # a slot without its publication is of no use
                await self._make_anew(found, why)
            elif found is not None and not found.active and (taken := await self._open(found)):
                return taken
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), TURN_S)
        return None

    def translated(self, error: Exception) -> CacheUpdaterError:
        """Our error for one of psycopg2's, on the stream."""
        if failures.lost_publication(error):
            self._unreadable = _UNPUBLISHED
            return Unavailable("the replication slot stands where the publication did not exist")
        return failures.of_server(error)

    async def _tables(self) -> Tables:
        """The watched tables; raises Misconfigured if one is missing or not told, or their publication is missing."""
        name = self._settings.publication
        publication = await catalogue.publication(self._questions, name)
        if publication is None:
            raise Misconfigured(
                f"there is no publication {name}: `cacheupdater changes install` makes it, and the slot"
            )
        tables = await catalogue.tables(self._questions, self._settings.watched)
        if tables.missing:
            raise Misconfigured(f"there is no table {tables.missing[0].table}, whose changes should be read")
        if untold := lacking.unpublished(publication, tables.known):
            raise Misconfigured(
                f"table {untold[0].told} is not in the publication {name}: `cacheupdater changes install` adds it"
            )
        return tables

    def _why_anew(self, found: Slot | None) -> str:
        """Why the slot must be made anew; nothing if it can be read. Raises Misconfigured if the slot is another's."""
        if found is None:
            return _GONE
        if found.plugin != catalogue.PLUGIN or not found.here:
            raise Misconfigured(
                f"the slot {self._settings.slot} belongs to another database or plugin: name another"
            )
        return self._unreadable or (_INVALID if found.lost else "")

    async def _make_anew(self, found: Slot | None, why: str) -> None:
        """Makes the slot anew, unless another process is faster."""
        questions = Questions(self._settings)  # the server may take long, and `waiting` is asked meanwhile
        try:
            if found is not None and not await slot.drop(questions, self._settings.slot):
                return
            self._unreadable = ""
            if await slot.make_anew(questions, self._settings.slot, why):
                self._lost = why
        finally:
            questions.close()

    async def _open(self, found: Slot) -> Taken | None:
        """Begins to read; None if another process was faster, or the slot turns out to be lost."""
        tables = await self._tables()
        try:
            stream = await Stream.opened(self._settings)
        except driver().Error as e:
            if failures.lost_slot(e):
                self._unreadable = _INVALID
            elif failures.code(e) != failures.IN_USE:
                raise failures.of_server(e) from None
            return None
        lost, self._lost = self._lost, ""
        return Taken(stream, found.place, tables, "" if stream.has_messages else lost)
