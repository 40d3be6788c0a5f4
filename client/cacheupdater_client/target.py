"""One target of hints: the buffers that clients fill, the outbox, the link.

Clients of one URL and one `only` share a target; those of one encoding share a buffer. The sender's thread calls `turn`.
Buffers are held weakly, except for those with recent hints. So a buffer ends with its clients. The sender retires a target
without buffers, which closes its socket.

A target may be the conventional socket, which no setting names. While its file does not exist, the buffers sleep: hints are
discarded, each at the cost of a touch. The thread looks for the file for as long as the process lives.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol, TypedDict
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from cacheupdater_client.buffer import AWAITED, FILL, Buffer, KeyEncoder
from cacheupdater_client.outbox import Outbox
from cacheupdater_client.protocol.wire import MISS, TOUCH
from cacheupdater_client.shown import shown
from cacheupdater_client.transports import Link, link_to

if TYPE_CHECKING:
    from collections.abc import Sequence

DRAIN_S = 0.1  # a shorter time costs the application: at 10 ms its p99.9 doubles
HURRY_S = 0.01  # the least time between turns for what is urgent, and between those that have more to do
LOOK_S = (
    1.0  # between looks for a socket that is not there; an updater that starts second is found within this
)
IDLE_TURNS = 10  # a buffer without hints for so long is no longer held
TROUBLE_S = 5.0  # a restart of the updater is shorter, and not worth a line

log = logging.getLogger("cacheupdater_client")


class TargetStats(TypedDict):
    """Hints of one target, duplicates counted: emitted = delivered + waiting + all that was dropped."""

    emitted: int
    delivered: int
    waiting: int
    dropped: dict[str, int]
    connected: bool
    trouble: str


class Keeper(Protocol):
    """The sender, as a target sees it."""

    @property
    def closing(self) -> bool:
        """Whether the sender is being closed: hints leave now or never."""

    def attend(self, target: Target) -> bool:
        """As Attendant."""

    def hurry(self) -> None:
        """As Attendant."""


class Target:
    """See the module. Any thread may call `buffer`, `attend`, `hurry` and `stats`; only the sender calls the rest."""

    def __init__(self, url: str, only: Sequence[bytes], keeper: Keeper, *, awaited: bool = False) -> None:
        self.url = url
        self._shown = shown(url)
        self.name = (
            f"{self._shown} only {b', '.join(only).decode('utf-8', 'replace')}" if only else self._shown
        )
        self.awaited = awaited  # a client that names the URL itself does not wait for its file
        self._only = only
        self._keeper = keeper
        self._make_link = link_to(url)
        self._buffers: WeakValueDictionary[tuple[str, str], Buffer] = WeakValueDictionary()
        self._begin()

    def _begin(self) -> None:
        self._busy: dict[Buffer, int] = {}  # turns since a hint came
        self._asleep = False
        self._outbox = Outbox(self._only)
        self._dropped: Counter[str] = Counter()  # by buffers that are no longer held
        self._link: Link = self._make_link()
        self._troubled_at: float | None = None
        self._warned = False

    # --- called by the application's threads ----------------------------------------------------------

    def buffer(self, encoder: KeyEncoder) -> Buffer:
        """The buffer of all clients that encode keys like this."""
        name = (encoder.encoding, encoder.encoding_errors)
        return self._buffers.setdefault(name, Buffer(encoder, self))

    def attend(self, buffer: Buffer) -> bool:
        """As Attendant."""
        self._busy[buffer] = 0
        return self._keeper.attend(self)

    def hurry(self) -> None:
        """As Attendant."""
        if not self._asleep:
            self._keeper.hurry()

    def _alive(self) -> list[Buffer]:
        # `values` would stumble over a client that is made meanwhile
        found = [reference() for reference in self._buffers.valuerefs()]
        return [buffer for buffer in found if buffer is not None]

    def stats(self) -> TargetStats:
        """The counts. No hint is in two of them. Hints that a turn is moving are in none, for some milliseconds."""
        buffers, outbox = {*self._alive(), *list(self._busy)}, self._outbox
        # copies, because other threads add reasons while `sum` walks through them
        dropped = self._dropped + outbox.dropped.copy()
        for buffer in buffers:
            dropped.update(buffer.dropped.copy())
        waiting = outbox.waiting + sum(map(len, buffers))
        return {
            "emitted": outbox.delivered + waiting + dropped.total(),
            "delivered": outbox.delivered,
            "waiting": waiting,
            "dropped": dict(dropped),
            "connected": self._link.connected,
            "trouble": f"no updater listens at {self._shown}" if self._asleep else self._link.trouble,
        }

    # --- called by the sender -------------------------------------------------------------------------

    def turn(self, now: float) -> float:
        """Moves hints from the buffers to the outbox, and from there to the link. Returns the seconds until the next turn."""
        if self.awaited or self._asleep:
            self._look()
            if self._asleep:
                return LOOK_S
        for buffer in list(self._busy):
            told = [(kind, buffer.drain_told(mine)) for kind, mine in ((MISS, AWAITED), (TOUCH, FILL))]
            batches = buffer.drain()
            for kind, counts in batches:
                self._outbox.add(kind, counts)
            for kind, hints in told:
                self._outbox.add_told(kind, hints)
            came = batches or any(hints for _, hints in told)
            self._hold(buffer, 0 if came else self._busy.get(buffer, 0) + 1)
        self._outbox.last_call = self._keeper.closing
        soon = self._link.turn(self._outbox, now, time.time_ns() // 1_000_000)
        self._tell(now)
        return HURRY_S if soon else DRAIN_S

    def _hold(self, buffer: Buffer, idle: int) -> None:
        """Lets go of an idle buffer. The order matters, for a thread may add at any moment: it attends, or is seen here."""
        if idle < IDLE_TURNS:
            self._busy[buffer] = idle
            return
        self._busy.pop(buffer, None)
        buffer.chill()
        if buffer.waits:
            self._busy[buffer] = 0
            return
        gone, buffer.dropped = buffer.dropped, type(buffer.dropped)(int)
        self._dropped.update(gone)

    def _look(self) -> None:
        """Sleeps while the socket's file does not exist, and wakes when it does. A file that was found stays a target."""
        there = not self.awaited or os.path.exists(urlsplit(self.url).path)  # noqa: PTH110  Path.exists may raise
        if there:
            self.awaited = False
            if self._asleep:
                self._asleep = False
                for buffer in self._alive():
                    buffer.wake()
                log.info("hints go to %s from now on", self._shown)
            return
        self._asleep = True
        self._busy.clear()
        for buffer in self._alive():
            buffer.sleep()

    def _tell(self, now: float) -> None:
        """One line when hints have waited for long, and one when they go again."""
        if self._link.connected or not self._outbox:
            if self._warned:
                log.info("hints go to %s again, after %.0f s", self._shown, now - (self._troubled_at or now))
            self._troubled_at, self._warned = None, False
            return
        if self._troubled_at is None:
            self._troubled_at = now
        if not self._warned and now - self._troubled_at >= TROUBLE_S:
            self._warned = True
            log.warning(
                "hints wait: %s does not take them: %s", self._shown, self._link.trouble or "no answer"
            )

    @property
    def hopeful(self) -> bool:
        """Whether hints wait, and a peer can take them."""
        return bool(self._outbox) and self._link.connected

    @property
    def waits(self) -> bool:
        """Whether something is to be sent, or a connection to be left."""
        return bool(self._outbox) or self._link.connected or any(buffer.waits for buffer in list(self._busy))

    @property
    def unused(self) -> bool:
        """Whether neither a client nor a hint of one is left."""
        return not (self._busy or self._outbox or len(self._buffers))

    def chill(self) -> None:
        """No thread takes turns from now on."""
        for buffer in self._alive():
            buffer.chill()

    def close(self) -> None:
        """Gives up and counts the hints that are not delivered by now."""
        self._outbox.discard("closed")
        self._link.close()

    def retire(self) -> TargetStats:
        """The last stats of an unused target. If a client names it again, it begins anew."""
        last = self.stats()
        self._link.close()
        self._outbox, self._dropped = Outbox(self._only), Counter()
        return last

    def begin_after_fork(self) -> None:
        """In a forked child. Closing our copy of the socket leaves the parent's connection alone."""
        for buffer in {*self._alive(), *self._busy}:
            buffer.begin_after_fork()
        self._link.close()
        self._begin()
