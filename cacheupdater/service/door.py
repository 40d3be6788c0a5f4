"""What every door can do: the way by which hints reach this process.

`Service.run` makes one door (`doors`) and calls, in this order: `find` (waits for the queue), `open` (accepts hints), `close` (lets
nothing new in), `finish` (waits until accepted hints are done, as long as there is time). The supervisor handles the hints
behind the door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cacheupdater.ports import Queue


class Door(Protocol):
    """The door of one process."""

    @property
    def queue(self) -> Queue: ...

    @property
    def partitions(self) -> int:
        """The number of partitions of the whole queue. Known once the queue is found."""
        ...

    @property
    def open_now(self) -> bool:
        """Whether the door accepts hints."""
        ...

    @property
    def conditions(self) -> dict[str, bool]:
        """What must be true of the door before the process is ready, each by a word."""
        ...

    @property
    def clients(self) -> int | None:
        """How many clients are connected; None if that cannot be known."""
        ...

    @property
    def session(self) -> float | None:
        """How many seconds an updater may be silent before others take over its partitions; None: there are no others."""
        ...

    async def find(self) -> int:
        """Waits for the queue. Returns the number of its partitions."""
        ...

    async def run(self) -> None:
        """The work of the door itself, beside the supervisor: from before `open` until `close` has ended it."""
        ...

    async def open(self) -> str:
        """Accept hints. Returns the addresses."""
        ...

    async def owner(self, partition: int) -> str | None:
        """The other updater that owns this partition. None: no updater owns it. Raises CacheUpdaterError."""
        ...

    def declare(self, prefixes: list[bytes]) -> None:
        """Tell the clients which keys are refreshed from now on: those that begin so. Called before `open` too."""
        ...

    async def close(self) -> None: ...

    async def finish(self, deadline: float) -> None:
        """Waits until the accepted hints are done, or until `deadline`."""
        ...
