"""The port `Marks` without Redis: the same rules on a dict, with the test's clock.

One `MemoryPlace` stands for the hash of one feed, and each `MemoryMarks` for one process. The contract tests compare them with
the real script. `down` makes calls fail.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cacheupdater.errors import Unavailable
from cacheupdater.feed_ports import LEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class MemoryPlace:
    """The marks and the turn of one feed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.owner: object = None
        self.until = 0.0
        self.marks: dict[str, str] = {}
        self.down = False

    def lose(self) -> None:
        """Forgets all, as a server does that comes back without its data."""
        self.owner = None
        self.marks.clear()


class MemoryMarks:
    """One process."""

    def __init__(self, place: MemoryPlace) -> None:
        self._place = place

    async def take(self) -> Mapping[str, str] | None:
        """As the port says."""
        place = self._place
        if place.down:
            raise Unavailable("down")
        if place.owner not in {None, self} and place.until > place.clock():
            return None
        place.owner, place.until = self, place.clock() + LEASE
        return dict(place.marks)

    async def keep(self, marks: Mapping[str, str]) -> None:
        """As the port says."""
        if await self.take() is None:
            raise Unavailable("another updater reads this feed now")
        self._place.marks |= marks

    async def leave(self) -> None:
        """As the port says."""
        with suppress(Unavailable):
            if await self.take() is not None:
                self._place.owner = None

    async def close(self) -> None:
        """Nothing is open."""
