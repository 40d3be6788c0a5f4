"""A feed in memory: a log of transactions with the rules of a database's, for virtual time.

One `MemoryLog` stands for a source and its one place in the log, and each `MemoryFeed` for one process's connection to it. The
contract tests compare them with the real feeds. `down` makes each call fail, and `lose` forgets what nobody has confirmed, as
a replication slot does that was dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.errors import Unavailable
from cacheupdater.feed_ports import SILENCE_MAX, Batch, Changed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from cacheupdater.feed_ports import Cells, Position, Skipped

TURN_S = 1.0  # seconds between two looks whether it is our turn
EVENTS_MAX = 1000  # changes of a batch


class MemoryTransaction:
    """What one transaction changes. Nobody sees anything of it before its commit."""

    def __init__(self) -> None:
        self.changes: list[Changed] = []
        self.emptied: list[str] = []
        self.skipped: list[Skipped] = []

    def change(self, table: str, *rows: Cells) -> None:
        """A row as it is now, or as it was and as it is."""
        self.changes.append(Changed(table, rows))

    def truncate(self, table: str) -> None:
        """Any row of the table may have gone."""
        self.emptied.append(table)

    def skip(self, skipped: Skipped) -> None:
        """Records that tell no change."""
        self.skipped.append(skipped)


class _Commit(NamedTuple):
    position: int
    changes: Sequence[Changed]
    committed: float | None
    emptied: Sequence[str] | None  # None: all tables that a feed watches
    why: str
    skipped: Sequence[Skipped] = ()


class MemoryLog:
    """What a database keeps for all feeds of one group: transactions in the order of their commits, until they are confirmed."""

    def __init__(self) -> None:
        self.commits: deque[_Commit] = deque()  # those that are not confirmed
        self.end = 0  # the position of the last commit
        self.turn: MemoryFeed | None = None
        self.down = False
        self.lacks: Sequence[str] = ()  # what each batch says
        self.feeds: set[MemoryFeed] = set()

    @contextmanager
    def transaction(self, committed: float | None = None) -> Iterator[MemoryTransaction]:
        """Is committed at its end; an exception rolls it back."""
        transaction = MemoryTransaction()
        yield transaction
        why = "the table was truncated" if transaction.emptied else ""
        self._append(transaction.changes, committed, transaction.emptied, why, skipped=transaction.skipped)

    def lose(self, why: str) -> None:
        """Forgets all that is not confirmed, and ends the connection of whoever reads."""
        self.commits.clear()
        self._append((), None, None, why)
        self.cut()

    def cut(self) -> None:
        """Ends the connection of whoever reads, as a restart of the database does, or the death of the process."""
        if self.turn is not None:
            self.turn.lost()

    def confirm(self, position: int) -> None:
        """Forgets what comes no more."""
        while self.commits and self.commits[0].position <= position:
            self.commits.popleft()

    def _append(
        self,
        changes: Sequence[Changed],
        committed: float | None,
        emptied: Sequence[str] | None,
        why: str,
        *,
        skipped: Sequence[Skipped] = (),
    ) -> None:
        self.end += 1
        self.commits.append(_Commit(self.end, changes, committed, emptied, why, skipped))
        for feed in self.feeds:
            feed.rung.set()


class MemoryFeed:
    """One process's connection to the log."""

    def __init__(self, log: MemoryLog, tables: Sequence[str], *, events_max: int = EVENTS_MAX) -> None:
        self._log = log
        self._tables = tuple(tables)
        self._events_max = events_max
        self._given = 0  # the position of the last commit that was given whole
        self._part = 0  # changes of the next commit that were given
        self._stopped = True
        self.rung = asyncio.Event()

    async def start(self) -> None:
        """Waits until it is our turn."""
        self._stopped = False
        self._refuse_if_down()
        while self._log.turn not in {None, self}:
            await asyncio.sleep(TURN_S)
            self._refuse_if_down()
            if self._stopped:
                raise Unavailable("the feed was stopped while it waited for its turn")
        self._log.turn = self
        self._log.feeds.add(self)
        self._given, self._part = 0, 0

    async def batches(self) -> AsyncIterator[Batch]:
        """Changes after those that were confirmed."""
        while not self._stopped:
            self._refuse_if_away()
            self.rung.clear()
            batch = self._next()
            if batch is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(SILENCE_MAX / 2):
                        await self.rung.wait()
                    continue
                batch = Batch((), self._given, lacks=self._log.lacks)
            if not self._stopped:
                self._refuse_if_away()
                yield batch

    async def confirm(self, position: Position) -> None:
        """All batches up to this one need not come again."""
        self._refuse_if_away()
        if isinstance(position, int):
            self._log.confirm(position)

    async def waiting(self) -> int | None:
        """The commits that are not confirmed."""
        self._refuse_if_down()
        return len(self._log.commits)

    async def stop(self) -> None:
        """Gives up the turn."""
        self._stopped = True
        self.lost()

    def lost(self) -> None:
        """The connection is gone, and the turn with it."""
        if self._log.turn is self:
            self._log.turn = None
        self._log.feeds.discard(self)
        self.rung.set()

    def _next(self) -> Batch | None:
        """Whole commits, as many as a batch holds, or a part of one that is larger than a batch."""
        changes: list[Changed] = []
        emptied: list[str] = []
        skipped: list[Skipped] = []
        why, committed, seen = "", None, False
        for commit in self._log.commits:
            if commit.position <= self._given:
                continue
            room = self._events_max - len(changes)
            more = commit.changes[self._part : self._part + room]
            changes += more
            committed, seen = commit.committed, True
            self._part += len(more)
            if self._part < len(commit.changes):
                break
            emptied += self._tables if commit.emptied is None else commit.emptied
            skipped += commit.skipped
            why = commit.why or why
            self._given, self._part = commit.position, 0
        tables = tuple(dict.fromkeys(emptied))
        return Batch(changes, self._given, committed, tables, why, skipped, self._log.lacks) if seen else None

    def _refuse_if_down(self) -> None:
        if self._log.down:
            self.lost()
            raise Unavailable("the database cannot be reached")

    def _refuse_if_away(self) -> None:
        self._refuse_if_down()
        if self._log.turn is not self:
            raise Unavailable("the connection of the feed was lost")
