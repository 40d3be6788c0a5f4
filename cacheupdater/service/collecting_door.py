"""The door of an updater that listens beside a shared queue: it collects the hints of its machine and forwards them.

`doors.door_for` makes it if the file has `listen` and a queue that is not memory://. A hint of a client goes through the
collector into the queue, and comes back to the owner of its partition, which may be this process. The service runs `run` beside
the supervisor. `close` stops the listeners first and forwards what is left; what arrives at our own partitions then is still
handled. A hint is never handed over within the process: whoever owns a key then, there is one way to it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.collector import Collector, Settings
from cacheupdater.config.queues import producer_url
from cacheupdater.errors import Misconfigured

if TYPE_CHECKING:
    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.losses import Losses
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Queue
    from cacheupdater.service.door import Door


def collecting_door(behind: Door, config: Config, *, observer: Losses, notices: Notices) -> Door:
    """The door with this configuration's listeners in front of the one `behind`. May raise Misconfigured."""
    try:
        settings = Settings([str(each) for each in config.listen], producer_url(config.queue))
        collector = Collector(settings, observer=observer, notices=notices)
    except ValueError as e:
        raise Misconfigured(f"listen: no hints can be forwarded: queue {e}") from e
    return CollectingDoor(behind, collector)


class CollectingDoor:
    """A `door.Door`."""

    def __init__(self, behind: Door, collector: Collector) -> None:
        self._behind = behind
        self._collector = collector
        self._where = ""
        self._ready, self._stop, self._ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._ended.set()

    @property
    def queue(self) -> Queue:
        return self._behind.queue

    @property
    def partitions(self) -> int:
        return self._behind.partitions

    @property
    def open_now(self) -> bool:
        return self._behind.open_now

    @property
    def conditions(self) -> dict[str, bool]:
        return {**self._behind.conditions, "forwarding": self._collector.forwards}

    @property
    def clients(self) -> int | None:
        """Unknown: others fill the queue too, and the hints of our clients may all go to other updaters."""
        return None

    @property
    def session(self) -> float | None:
        return self._behind.session

    async def find(self) -> int:
        return await self._behind.find()

    async def run(self) -> None:
        """Collects until `close`. An address that cannot be listened on ends the updater."""
        self._ended.clear()
        try:
            await self._collector.run(self._listens, self._stop)
        finally:
            self._ended.set()

    def _listens(self, where: str) -> None:
        self._where = where
        self._ready.set()

    async def open(self) -> str:
        behind = await self._behind.open()
        await self._ready.wait()
        return f"{self._where} {behind}"

    async def owner(self, partition: int) -> str | None:
        return await self._behind.owner(partition)

    def declare(self, prefixes: list[bytes]) -> None:
        self._behind.declare(prefixes)
        self._collector.declare(prefixes)

    async def close(self) -> None:
        self._stop.set()
        await self._ended.wait()  # within the collector's own bounds
        await self._behind.close()

    async def finish(self, deadline: float) -> None:
        await self._behind.finish(deadline)
