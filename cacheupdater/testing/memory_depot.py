"""A depot in memory: the same rules as in a database, on dicts, with the test's clock.

One `MemoryTables` stands for the database, and each `MemoryDepot` for one process's connection to it. The contract tests compare
them with the real depots, and the simulation of members runs on them. `down` makes calls fail, before or after they were
carried out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from cacheupdater.core.membership import Roster
from cacheupdater.depot_ports import Lag
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Gained, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cacheupdater.depot_ports import Progress

_FIRST = 1  # the offset of a partition's first pack


class _Shelf:
    """One partition."""

    def __init__(self) -> None:
        self.packs: dict[int, bytes] = {}  # by offset, in order
        self.next = self.scan = self.done = _FIRST
        self.epoch = 0
        self.owner: str | None = None

    def read(self, after: int, limit: int) -> list[Message]:
        behind = (Message(offset, pack) for offset, pack in self.packs.items() if offset >= after)
        return list(islice(behind, limit))

    def advance(self, progress: Progress) -> None:
        self.scan = max(self.scan, progress.scan)
        self.done = max(self.done, progress.done)
        self._sweep()
        for offset in progress.finished:
            self.packs.pop(offset, None)

    def drop(self, end: int) -> None:
        end = min(end, self.next)
        self.scan, self.done = max(self.scan, end), max(self.done, end)
        self._sweep()

    def _sweep(self) -> None:
        for offset in [*self.packs]:
            if offset >= self.done:
                break
            del self.packs[offset]


class MemoryTables:
    """What lies in the database."""

    def __init__(self, partitions: int, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.shelves = [_Shelf() for _ in range(partitions)]
        self.sessions: dict[str, float] = {}
        """By member, when its session runs out. A test that sets an earlier time lets the session run out."""
        self.arrivals = 0  # how often packs were put
        self.news = asyncio.Event()  # set and replaced when packs are put

    def renew(self, member: str, session: float) -> Roster:
        self.sessions[member] = self.clock() + session
        living = frozenset(each for each in self.sessions if self._runs(each))
        owners = {
            partition: shelf.owner for partition, shelf in enumerate(self.shelves) if shelf.owner in living
        }
        return Roster(living, {partition: owner for partition, owner in owners.items() if owner})

    def claim(self, member: str, partitions: Sequence[int]) -> list[Gained]:
        gained = []
        for partition in partitions if self._runs(member) else ():
            shelf = self.shelves[partition]
            if shelf.owner is None or shelf.owner == member or not self._runs(shelf.owner):
                shelf.owner = member
                shelf.epoch += 1
                gained.append(Gained(partition, shelf.epoch, shelf.done))
        return gained

    def release(self, member: str, epochs: Mapping[int, int]) -> None:
        for partition, epoch in epochs.items():
            if self._owns(member, partition, epoch):
                self.shelves[partition].owner = None

    def leave(self, member: str) -> None:
        self.sessions.pop(member, None)
        for shelf in self.shelves:
            if shelf.owner == member:
                shelf.owner = None

    def read(self, after: Mapping[int, int], limit: int) -> dict[int, list[Message]]:
        found = {
            partition: self.shelves[partition].read(offset, limit) for partition, offset in after.items()
        }
        return {partition: packs for partition, packs in found.items() if packs}

    def commit(self, member: str, progress: Mapping[int, Progress]) -> list[int]:
        refused = []
        for partition, each in progress.items():
            if self._owns(member, partition, each.epoch):
                self.shelves[partition].advance(each)
            else:
                refused.append(partition)
        return refused

    def put(self, packs: Sequence[tuple[int, bytes]]) -> None:
        for partition, payload in packs:
            shelf = self.shelves[partition]
            shelf.packs[shelf.next] = payload
            shelf.next += 1
        self.arrivals += 1
        self.news.set()
        self.news = asyncio.Event()

    def lag(self) -> list[Lag]:
        return [
            Lag(number, shelf.done, shelf.next, len(shelf.packs), self._owner(shelf))
            for number, shelf in enumerate(self.shelves)
        ]

    def _owner(self, shelf: _Shelf) -> str | None:
        return shelf.owner if shelf.owner is not None and self._runs(shelf.owner) else None

    def _owns(self, member: str, partition: int, epoch: int) -> bool:
        shelf = self.shelves[partition]
        return shelf.owner == member and shelf.epoch == epoch

    def _runs(self, member: str) -> bool:
        return self.sessions.get(member, 0.0) > self.clock()


class MemoryDepot:
    """`ports.Depot` and `ports.Waiting` on `MemoryTables`: one process's connection."""

    def __init__(self, tables: MemoryTables) -> None:
        self.down = ""
        """`before`: calls do not arrive. `after`: calls arrive, but their answers do not."""
        self._tables = tables
        self._seen = 0  # arrivals before the last `read`

    async def open(self) -> int:
        self._request()
        self._answer()
        return len(self._tables.shelves)

    async def renew(self, member: str, session: float) -> Roster:
        """The session runs by the clock of the tables."""
        self._request()
        roster = self._tables.renew(member, session)
        self._answer()
        return roster

    async def claim(self, member: str, partitions: Sequence[int]) -> Sequence[Gained]:
        """Each under a new epoch."""
        self._request()
        gained = self._tables.claim(member, partitions)
        self._answer()
        return gained

    async def release(self, member: str, epochs: Mapping[int, int]) -> None:
        """Where the epoch is still this one."""
        self._request()
        self._tables.release(member, epochs)
        self._answer()

    async def leave(self, member: str) -> None:
        """Frees all at once."""
        self._request()
        self._tables.leave(member)
        self._answer()

    async def read(self, after: Mapping[int, int], limit: int) -> Mapping[int, Sequence[Message]]:
        """Leaves out the partitions that have nothing."""
        self._request()
        self._seen = self._tables.arrivals
        found = self._tables.read(after, limit)
        self._answer()
        return found

    async def commit(self, member: str, progress: Mapping[int, Progress]) -> Collection[int]:
        """Deletes at once what is finished."""
        self._request()
        refused = self._tables.commit(member, progress)
        self._answer()
        return refused

    async def put(self, packs: Sequence[tuple[int, bytes]]) -> None:
        """Rings for those that wait."""
        self._request()
        self._tables.put(packs)
        self._answer()

    async def put_back(self, partition: int, packs: Sequence[bytes]) -> range:
        """As `put` does."""
        self._request()
        self._tables.put([(partition, each) for each in packs])
        end = self._tables.shelves[partition].next
        self._answer()
        return range(end - len(packs), end)

    async def lag(self) -> Sequence[Lag]:
        """Of all partitions."""
        self._request()
        lags = self._tables.lag()
        self._answer()
        return lags

    async def drop(self, partition: int, end: int) -> None:
        """Deletes at once."""
        self._request()
        self._tables.shelves[partition].drop(end)
        self._answer()

    async def wait(self, seconds: float) -> None:
        """Returns at the next `put`, whoever calls it."""
        await asyncio.sleep(0)
        if self._tables.arrivals == self._seen:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._tables.news.wait()

    async def close(self) -> None:
        """Nothing is open."""

    def _request(self) -> None:
        if self.down == "before":
            raise Unavailable("the depot is down")

    def _answer(self) -> None:
        if self.down:
            raise Unavailable("the depot is down")
