"""`memory://name`: applications in the updater's own process hand in their hints through a mailbox.

For demonstrations, tests and small programs that run both sides. The service makes one `MemoryListener` per name beside a
memory queue, and closes it with the other listeners. The listener looks into the mailbox at short intervals, for senders are
threads that know no event loop. It puts the frames that it finds on the queue. While the queue is full, frames stay in the
mailbox, which is bounded. The listener copies nothing and decodes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol.mailbox import mailbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cacheupdater.ports import Observer
    from cacheupdater_client.protocol.mailbox import Mailbox
    from cacheupdater_client.protocol.wire import Hello

SCHEME = "memory://"
LOOK_S = 0.005  # well below the 10 ms within which a change must leave its application
TAKE_FRAMES = 64  # frames that are out of the mailbox and not yet on the queue
GRACE_S = 1.0  # how long closing waits for room on the queue


class MemoryListener:
    """The updater's end of one mailbox."""

    def __init__(
        self,
        put: Callable[[int, bytes, int], Awaitable[None]],
        peer: int,
        *,
        hello: Hello,
        observer: Observer,
    ) -> None:
        """`put` waits until the queue has taken a pack of this peer."""
        self._put = put
        self._peer = peer
        self._hello = hello
        self._observer = observer
        self._box: Mailbox | None = None
        self._taking: asyncio.Task[None] | None = None

    async def start(self, address: str) -> None:
        """Open the mailbox of this name, or raise Misconfigured."""
        if not address.startswith(SCHEME):
            raise Misconfigured(f"listen: {address!r} is not memory://name")
        box = mailbox(address.removeprefix(SCHEME))
        if box.hello is not None:
            raise Misconfigured(f"listen: another updater of this process listens on {address}")
        box.open(self._hello)
        self._box = box
        self._taking = asyncio.get_running_loop().create_task(self._take_all())

    def greet(self, hello: Hello) -> None:
        """From now on this is the hello. Senders look at it before each frame."""
        self._hello = hello
        if self._box is not None and self._box.hello is not None:
            self._box.hello = hello

    async def close(self) -> None:
        """Accept no more frames, and put the accepted ones on the queue, within `GRACE_S`."""
        if self._box is None or self._taking is None:
            return
        self._box.close()
        _, late = await asyncio.wait([self._taking], timeout=GRACE_S)
        for task in late:
            task.cancel()
        await self._taking
        self._box = None

    async def _take_all(self) -> None:
        """Runs until the mailbox is closed and empty, or the queue is closed."""
        assert self._box is not None
        while True:
            closed = (
                self._box.hello is None
            )  # read before taking: every frame put before the close is taken after it
            frames = self._box.take(TAKE_FRAMES)
            if not await self._put_all(frames) or (closed and not frames):
                return
            if not frames:
                await asyncio.sleep(LOOK_S)

    async def _put_all(self, frames: Sequence[tuple[int, bytes]]) -> bool:
        """Puts these frames on the queue. False if the queue takes no more."""
        for at, (partition, pack) in enumerate(frames):
            if (
                partition >= self._hello.partitions
            ):  # from a sender that knows the hello of an earlier updater
                self._observer.count("intake_rejected", 1, reason="partition_out_of_range")
                continue
            try:
                await self._put(partition, pack, self._peer)
            except (Unavailable, asyncio.CancelledError):  # only `close` cancels, and it awaits us
                self._observer.count("intake_rejected", len(frames) - at, reason="closed")
                return False
        return True
