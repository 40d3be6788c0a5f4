"""Puts hints that stay open for long back on their queue. `core.putting_back` decides which.

A partition whose queue can take hints back has one `Returner`, and calls it after its commits. The new packs are on the queue
before the old place may count as done, so a crash in between repeats hints and loses none. If the queue does not answer, the
hints stay where they are, and the next look tries again. Meanwhile the partition takes no packs in: it would take ours for
anybody's before it learns of their places.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.errors import Unavailable
from cacheupdater_client.protocol.wire import encode_pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.core.engine import Engine
    from cacheupdater.core.putting_back import PutBack
    from cacheupdater.ports import Gained, Observer, PutsBack


class Returner:
    """One partition's way back to its queue."""

    def __init__(
        self,
        queue: PutsBack,
        gained: Gained,
        engine: Engine,
        *,
        observer: Observer,
        wall: Callable[[], float] | None,
    ) -> None:
        """`wall` dates the packs, as clients do; without it no hint is ever too old."""
        self._queue = queue
        self._gained = gained
        self._putting_back = engine.putting_back
        self._observer = observer
        self._wall = wall
        self.at_rest = asyncio.Event()
        """Set unless packs are on their way to the queue."""
        self.at_rest.set()

    async def put_back(self) -> None:
        """Puts back what has been open for too long."""
        now = asyncio.get_running_loop().time()
        found = self._putting_back.find(now)
        if found is None:
            return
        # dated now: a pack that is old when it is read would count as a sign of a wrong clock
        dated = round(self._wall() * 1000) if self._wall else 0
        packs = [encode_pack(each.kind, dated, each.keys) for each in found.packs]
        self.at_rest.clear()
        try:
            await self._put(found, packs)
        except Unavailable:  # whatever has arrived is read as anybody's
            self._putting_back.failed(asyncio.get_running_loop().time())
            self._observer.count("commit_failures", 1, reason="put_back")
        finally:
            self.at_rest.set()

    async def _put(self, found: PutBack, packs: Sequence[bytes]) -> None:
        gained = self._gained
        places = await self._queue.put_back(gained.partition, epoch=gained.epoch, packs=packs)
        if places is not None and self._putting_back.placed(found, places, asyncio.get_running_loop().time()):
            self._observer.count("put_back", sum(len(each.keys) for each in found.packs))
