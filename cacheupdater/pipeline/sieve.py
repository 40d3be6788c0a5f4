"""Finds packs that come too late, and counts the reads among them. Intake drops late reads, and never a change.

Each process has one `Sieve`, for a sender's clock is the same in all partitions. Intake asks it about each pack.
`core.lateness` decides what is too late and which clocks are off. This module reads the wall clock, the only clock that
senders share with us, and reports late reads and clocks that are off.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.core.hints import Kind
from cacheupdater.core.lateness import Lateness
from cacheupdater.pipeline.looking import WINDOW_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer
    from cacheupdater_client.protocol import wire


_LATE = (
    "reads are reported more than a minute late, and dropped: the queue has a backlog, or the senders could not send."
    " A key that is still read is refreshed by a later read"
)
EARLIEST_MS = 1_500_000_000_000  # July 2017, before the first pack was made: an earlier time means that the sender has no clock


class Sieve:
    """Knows how late the hints of a process' senders are."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        wall: Callable[[], float],
        *,
        observer: Observer,
        notices: Notices,
    ) -> None:
        """`wall` gives the seconds since 1970."""
        self._keyspace = keyspace
        self._wall = wall
        self._observer = observer
        self._notices = notices
        self._lateness = Lateness()
        self._reported = ""
        self._dropped = 0  # keys since the last report
        self._last = 0.0  # when a report last told of dropped keys

    def follow(self, keyspace: Keyspace[Namespace]) -> None:
        """The namespaces are others from now on; the senders and their clocks are the same."""
        self._keyspace = keyspace

    def late(self, kind: Kind, pack: wire.Pack, *, caught_up: bool) -> bool:
        """Whether the pack comes too late; if so, its reads are counted. A pack that does not say when it was made is never late.

        `caught_up`: no other pack waits behind it on the queue.
        """
        if pack.emitted_ms < EARLIEST_MS:
            return False
        now, age = asyncio.get_running_loop().time(), self._wall() - pack.emitted_ms / 1000.0
        if caught_up:
            self._lateness.sighted(age, now)
        if not self._lateness.is_late(age, now):
            return False
        if kind is not Kind.CHANGE:
            self._count(pack.keys)
        return True

    def _count(self, reads: Sequence[bytes]) -> None:
        for namespace, keys in self._keyspace.resolve_many(reads)[0].items():
            self._observer.count("dropped", len(keys), label=namespace.name, reason="late")
            self._dropped += len(keys)

    def tell(self, now: float) -> None:
        """Reports whether reads are dropped, and which clocks are off. The service calls it once a second."""
        self._tell_dropped(now)
        self._tell_clocks(now)

    def _tell_dropped(self, now: float) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            self._last = now
            self._notices.trouble("late", "", _LATE, keys=dropped)
        elif now >= self._last + WINDOW_S:
            self._notices.over("late", "")

    def _tell_clocks(self, now: float) -> None:
        ways = (("behind", self._lateness.behind(now)), ("ahead of", self._lateness.ahead(now)))
        text = " and ".join(f"some are up to {seconds:.0f} s {way} ours" for way, seconds in ways if seconds)
        if text == self._reported:
            return
        self._reported = text
        if text:
            self._notices.trouble("clock_off", "", f"of the clocks of hint senders, {text}")
        else:
            self._notices.over("clock_off", "")
