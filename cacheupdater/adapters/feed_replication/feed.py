"""The changes of a PostgreSQL (12 and newer), read from a logical replication slot.

The composition root makes one `ReplicationFeed` per source, and it lives as long as its reader. Only one process at a time reads
a slot (`turn`).

A slot keeps WAL until it is confirmed. So what was not confirmed comes again, whoever dies. A slot that is lost is made anew,
and all watched tables count as emptied (`slot`). While nobody asks for batches, nothing is read, and the server waits. It is
told each 2 s that we live, unless nobody has asked for ten minutes: then the turn goes to another process.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_replication import catalogue, slot
from cacheupdater.adapters.feed_replication.batching import Batching
from cacheupdater.adapters.feed_replication.connections import Questions, driver
from cacheupdater.adapters.feed_replication.decode import Decoder
from cacheupdater.adapters.feed_replication.progress import Progress
from cacheupdater.adapters.feed_replication.turn import Turn
from cacheupdater.errors import CacheUpdaterError, Unavailable
from cacheupdater.feed_ports import SILENCE_MAX, Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from cacheupdater.adapters.feed_replication.settings import Settings
    from cacheupdater.adapters.feed_replication.stream import Stream
    from cacheupdater.adapters.feed_replication.turn import Taken
    from cacheupdater.feed_ports import Position

ALIVE_S = 2.0  # seconds between two words to the server; it waits for 20 s (settings.SENDER_TIMEOUT_S)
TELL_S = 0.1  # seconds from a confirmation until the server is told; those in between are told together
LINGER_S = 0.01  # seconds for the rest of a transaction, until a part of it is given
BEAT_S = 3.0  # seconds between two heartbeats through the WAL: some 100 bytes of WAL each
QUIET_S = SILENCE_MAX / 2  # seconds without a change until an empty batch
LOST_S = 3 * SILENCE_MAX  # seconds without a word of the server until the connection counts as dead
# Seconds without a question of the consumer until the server hears no more of us, and ends the connection: a server that shuts
# down waits for each reader that lives. A consumer that waits for its budget or its queue still asks what waits here
ASLEEP_S = 600.0
MESSAGES_MAX = 2000  # read in one turn of the event loop: rows of tables that nobody watches count too


class ReplicationFeed:
    """A feed of one slot."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._questions = Questions(settings)
        self._turn = Turn(settings, self._questions)
        self._stream: Stream | None = None
        self._progress = Progress()
        self._batching: Batching | None = None
        self._stopped = asyncio.Event()
        self._wake = asyncio.Event()
        self._error: CacheUpdaterError | None = None  # that a timer has met
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._beating: asyncio.Task[None] | None = None
        self._asked = self._given = self._heard = 0.0  # by the loop's clock
        self._linger: float | None = None  # until when the rest of a transaction is waited for

    async def start(self) -> None:
        """Waits until the slot is ours, and makes it anew if it is lost."""
        self._close()
        self._stopped.clear()
        taken = await self._turn.take(self._stopped)
        if taken is not None and not self._stopped.is_set():
            self._begin(taken)
            return
        if taken is not None:
            taken.stream.close()
        raise Unavailable("the feed was stopped while it waited for its turn")

    async def batches(self) -> AsyncIterator[Batch]:
        """Changes after those that were confirmed, until `stop`."""
        while (stream := self._stream) is not None and (batching := self._batching) is not None:
            self._asked = self._now()
            try:
                dry = self._read(stream, batching)
                if dry and self._rest_comes(batching):
                    await self._wait(stream, LINGER_S)
                    continue
                batch = batching.given()
                if batch is None and dry:
                    await self._wait(stream)
                    batch = self._quiet(stream, batching)
                elif batch is None:
                    await asyncio.sleep(0)  # much was read, and nothing of it is watched
            except driver().Error as e:
                self._close()
                raise self._turn.translated(e) from None
            except CacheUpdaterError:
                self._close()
                raise
            if batch is not None and self._stream is stream:
                self._given, self._linger = self._now(), None
                yield batch

    async def confirm(self, position: Position) -> None:
        """The server is told within 100 ms."""
        if self._stream is None or not isinstance(position, int):
            raise Unavailable("the feed is not connected, so nothing can be confirmed")
        self._asked = self._now()
        self._progress.confirmed(position)
        self._wake.set()
        if "tell" not in self._timers:
            self._after(TELL_S, "tell", self._tell)

    async def waiting(self) -> int | None:
        """Bytes of WAL behind the place that is confirmed. A consumer that asks is awake, even if it takes nothing for hours."""
        waiting = await catalogue.waiting(self._questions, self._settings.slot)
        self._asked = max(self._asked, self._now())
        return waiting

    async def stop(self) -> None:
        """Gives up the slot."""
        self._stopped.set()
        if self._stream is not None and self._progress.untold:
            with suppress(Exception):
                self._stream.tell(self._progress.tell(), ask=False)
        self._close()
        if self._beating is not None:
            await asyncio.wait({self._beating})
        self._questions.close()

    # --- start ----------------------------------------------------------------------------------------------------

    def _begin(self, taken: Taken) -> None:
        named, stream = taken.tables.named(), taken.stream
        self._stream, self._error, self._progress = stream, None, Progress(taken.place)
        self._batching = Batching(
            Decoder(named, taken.tables.bases),
            self._progress,
            slot_name=self._settings.slot,
            tables=[each.told for each in named.values()],
        )
        if taken.lost:
            self._batching.lost(taken.lost)
        self._asked = self._given = self._heard = self._now()
        self._after(ALIVE_S, "alive", self._alive)
        if stream.has_messages:
            self._after(BEAT_S, "beat", self._beat)

    # --- batches --------------------------------------------------------------------------------------------------

    def _read(self, stream: Stream, batching: Batching) -> bool:
        """Reads what has come, as far as a batch holds it. True if there is no more to read now."""
        if self._error is not None:
            raise self._error
        for _ in range(MESSAGES_MAX):
            if batching.full or not self._progress.may_read():
                return not batching.full
            message = stream.read()
            if message is None:
                return True
            batching.take(message.data_start, message.payload)
        return False

    def _rest_comes(self, batching: Batching) -> bool:
        """Whether the rest of a transaction is on its way: the server sends it row by row, and a batch for each costs more."""
        if not batching.inside or not self._progress.may_read():
            self._linger = None
        elif self._linger is None:
            self._linger = self._now() + LINGER_S
        return self._linger is not None and self._now() < self._linger

    async def _wait(self, stream: Stream, seconds: float | None = None) -> None:
        """Until a message, a confirmation or a timer may have changed something."""
        self._wake.clear()
        if self._error is not None or self._stream is not stream:
            return
        if self._progress.may_read():
            stream.when_readable(self._wake.set)
        self._asked = inf  # who waits is not asleep
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        finally:
            self._asked = self._now()
            stream.unwatch()

    def _quiet(self, stream: Stream, batching: Batching) -> Batch | None:
        """An empty batch, if the server speaks and has told no change for a while. Raises Unavailable if it is silent although it
        was asked."""
        now = self._now()
        if self._stream is not stream or self._error is not None:
            return None
        if not self._progress.settled or stream.spoken():
            self._heard = now
        if now - self._heard >= LOST_S:
            raise Unavailable(f"the database has said nothing for {LOST_S:.0f} s")
        if now - self._given < QUIET_S or self._heard < self._given:
            return None
        committed, batching.beat = batching.beat, None
        return Batch((), self._progress.read, committed)

    # --- timers ---------------------------------------------------------------------------------------------------

    def _after(self, seconds: float, name: str, call: Callable[[], None]) -> None:
        def due() -> None:
            del self._timers[name]
            call()

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, due)

    def _tell(self) -> None:
        """Tells the server what is confirmed."""
        try:
            if self._stream is not None:
                self._stream.tell(self._progress.tell(), ask=self._progress.settled)
        except driver().Error as e:
            self._error = self._turn.translated(e)
        self._wake.set()

    def _alive(self) -> None:
        if self._now() - self._asked < ASLEEP_S:
            self._tell()
        self._after(ALIVE_S, "alive", self._alive)

    def _beat(self) -> None:
        if self._beating is None or self._beating.done():
            self._beating = asyncio.get_running_loop().create_task(self._said())
        self._after(BEAT_S, "beat", self._beat)

    async def _said(self) -> None:
        with suppress(
            CacheUpdaterError
        ):  # the stream says by its silence what is wrong, and the next beat tries again
            await slot.beat(self._questions, self._settings.slot)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _close(self) -> None:
        """Gives up the turn."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._beating is not None:
            self._beating.cancel()
        if self._stream is not None:
            self._stream.close()
        self._stream = self._batching = None
        self._heard = -inf
        self._wake.set()
