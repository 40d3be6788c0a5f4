"""A depot in memory: the same rules as in a database, lanes included, on dicts, with the test's clock.

One `MemoryTables` stands for the database, and each `MemoryDepot` for one process's connection to it. The contract tests compare
them with the real depots, and the simulation of members runs on them. `down` makes calls fail, before or after they were
carried out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from cacheupdater.core.lanes import FIRST, is_urgent_lane, lane_of, partition_of_lane, urgent_of
from cacheupdater.core.membership import Roster
from cacheupdater.depot_ports import Claimed, Lag
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Progress


class _Shelf:
    """One lane. That of a partition's touches has its owner."""

    def __init__(self) -> None:
        self.packs: dict[int, bytes] = {}  # by offset, in order
        self.next = self.scan = self.done = FIRST
        self.epoch = 0
        self.owner: str | None = None

    def put(self, payload: bytes) -> None:
        self.packs[self.next] = payload
        self.next += 1

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
        self.urgent = [_Shelf() for _ in range(partitions)]
        self.sessions: dict[str, float] = {}
        """By member, when its session runs out. A test that sets an earlier time lets the session run out."""
        self.arrivals = 0  # how often packs were put
        self.news = asyncio.Event()  # set and replaced when packs are put

    def shelf(self, lane: Lane) -> _Shelf:
        return (self.urgent if is_urgent_lane(lane) else self.shelves)[partition_of_lane(lane)]

    def renew(self, member: str, session: float) -> Roster:
        self.sessions[member] = self.clock() + session
        living = frozenset(each for each in self.sessions if self._runs(each))
        owners = {
            partition: shelf.owner for partition, shelf in enumerate(self.shelves) if shelf.owner in living
        }
        return Roster(living, {partition: owner for partition, owner in owners.items() if owner})

    def claim(self, member: str, partitions: Sequence[int]) -> list[Claimed]:
        gained = []
        for partition in partitions if self._runs(member) else ():
            shelf = self.shelves[partition]
            if shelf.owner is None or shelf.owner == member or not self._runs(shelf.owner):
                shelf.owner = member
                shelf.epoch += 1
                gained.append(Claimed(partition, shelf.epoch, shelf.done, self.urgent[partition].done))
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

    def read(self, after: Mapping[Lane, int], limit: int) -> dict[Lane, list[Message]]:
        found = {lane: self.shelf(lane).read(offset, limit) for lane, offset in after.items()}
        return {lane: packs for lane, packs in found.items() if packs}

    def commit(self, member: str, progress: Mapping[Lane, Progress]) -> list[Lane]:
        refused = []
        for lane, each in progress.items():
            if self._owns(member, partition_of_lane(lane), each.epoch):
                self.shelf(lane).advance(each)
            else:
                refused.append(lane)
        return refused

    def put(self, packs: Sequence[tuple[int, bytes]]) -> None:
        for partition, payload in packs:
            self.shelf(lane_of(partition, payload)).put(payload)
        self._ring()

    def put_back(self, partition: int, packs: Sequence[bytes]) -> range:
        shelf = self.urgent[partition]
        for each in packs:
            shelf.put(each)
        self._ring()
        return range(shelf.next - len(packs), shelf.next)

    def _ring(self) -> None:
        self.arrivals += 1
        self.news.set()
        self.news = asyncio.Event()

    def lag(self) -> list[Lag]:
        lags = []
        for partition, shelf in enumerate(self.shelves):
            for lane in (urgent_of(partition), partition):
                kept = self.shelf(lane)
                lags.append(Lag(lane, kept.done, kept.next, len(kept.packs), self._owner(shelf)))
        return lags

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

    async def claim(self, member: str, partitions: Sequence[int]) -> Sequence[Claimed]:
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

    async def read(self, after: Mapping[Lane, int], limit: int) -> Mapping[Lane, Sequence[Message]]:
        """Leaves out the lanes that have nothing."""
        self._request()
        self._seen = self._tables.arrivals
        found = self._tables.read(after, limit)
        self._answer()
        return found

    async def commit(self, member: str, progress: Mapping[Lane, Progress]) -> Collection[Lane]:
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
        """Rings as `put` does."""
        self._request()
        places = self._tables.put_back(partition, packs)
        self._answer()
        return places

    async def lag(self) -> Sequence[Lag]:
        """Of all lanes."""
        self._request()
        lags = self._tables.lag()
        self._answer()
        return lags

    async def drop(self, lane: Lane, end: int) -> None:
        """Deletes at once."""
        self._request()
        self._tables.shelf(lane).drop(end)
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
