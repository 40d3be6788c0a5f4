"""The way of a collector to a queue in a SQL database: a link, as the client's links to Kafka or to streams.

The collector makes one `DepotLink`; its forwarder calls `turn` and `close` in one thread beside the loop. A depot awaits, so the
link runs a loop of its own for the time of a call. A turn puts all frames that the outbox gives, all or none, and acknowledges them
when the database has committed. A fault costs no frame: the outbox keeps what is not acknowledged, and sends it again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from cacheupdater.adapters.depot_sql import depot_at
from cacheupdater.errors import CacheUpdaterError, Unavailable
from cacheupdater_client.protocol.wire import Hello

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cacheupdater.core import depot_url
    from cacheupdater.depot_ports import Depot
    from cacheupdater_client.outbox import Frame, Outbox

T = TypeVar("T")

CALL_S = 3.0  # seconds until a database that does not answer counts as away; a stop may wait for one call
AGAIN_S = 0.5  # seconds after a fault until the next try


class DepotLink:
    """The depot of one address, opened by the first turn that has something to send, and anew after each fault."""

    def __init__(self, address: depot_url.Address) -> None:
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._depot: Depot | None = None
        self._settled = 0  # frames since the last hello, as the outbox counts them
        self._retry_at = 0.0
        self.connected = False
        self.trouble = ""

    def turn(self, outbox: Outbox, now: float, now_ms: int) -> bool:
        """Opens the depot, and puts what waits. True if more hints wait than fit into the window."""
        wanted = bool(outbox) if self.connected else outbox.calls
        if not wanted or now < self._retry_at:
            return False
        try:
            if self._depot is None:
                self._greet(outbox)
            frames = []
            while frame := outbox.next_frame(now_ms):
                frames.append(frame)
            more = outbox.blocked
            if frames:
                self._put(frames, outbox)
        except CacheUpdaterError as e:
            self.close()
            self.trouble, self._retry_at = str(e), now + AGAIN_S
            return False
        return more

    def _greet(self, outbox: Outbox) -> None:
        self._loop = asyncio.new_event_loop()
        self._depot = depot_at(self._address)
        self._settled = 0
        outbox.greet(Hello(self._run(self._depot.open()), []))
        self.connected, self.trouble = True, ""

    def _put(self, frames: list[Frame], outbox: Outbox) -> None:
        assert self._depot is not None
        self._run(self._depot.put([(frame.partition, frame.pack) for frame in frames]))
        self._settled += len(frames)
        outbox.acknowledge(self._settled)

    def _run(self, call: Coroutine[None, None, T]) -> T:
        assert self._loop is not None

        async def limited() -> T:
            async with asyncio.timeout(CALL_S):
                return await call

        try:
            return self._loop.run_until_complete(limited())
        except TimeoutError:
            raise Unavailable(f"no answer within {CALL_S:g} s") from None

    def close(self) -> None:
        """Gives the connection back; the next turn opens a new one."""
        depot, self._depot = self._depot, None
        self.connected = False
        loop, self._loop = self._loop, None
        if loop is not None:
            if depot is not None:
                loop.run_until_complete(depot.close())
            loop.close()
