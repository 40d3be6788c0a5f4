"""Reads that come too late are counted and dropped before the engine sees them; changes never are.

One per process, for a sender's clock is the same in all partitions; intake asks for each pack. What is too late, and which
clocks are off, is `core.lateness`' to say; here the wall clock is read, which is the only one that senders share with us, and
people are told once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.core.hints import Kind
from cacheupdater.core.lateness import Lateness

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer
    from cacheupdater_client.protocol import wire


EARLIEST_MS = (
    1_500_000_000_000  # July 2017, before there was such a pack: a sender that says less has no clock
)


class Sieve:
    """One process'."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        wall: Callable[[], float],
        *,
        observer: Observer,
        notices: Notices,
    ) -> None:
        """`wall` says the seconds since 1970."""
        self._keyspace = keyspace
        self._wall = wall
        self._observer = observer
        self._notices = notices
        self._lateness = Lateness()
        self._told = ""

    def late(self, kind: Kind, pack: wire.Pack, *, caught_up: bool) -> bool:
        """Whether the pack shall not be taken in. One that does not say when it was made never is late.

        `caught_up`: nothing lies behind it on the queue.
        """
        if pack.emitted_ms < EARLIEST_MS:
            return False
        now, age = asyncio.get_running_loop().time(), self._wall() - pack.emitted_ms / 1000.0
        if caught_up:
            self._lateness.sighted(age, now)
        if kind is Kind.CHANGE or not self._lateness.is_late(age, now):
            return False
        for namespace, keys in self._keyspace.resolve_many(pack.keys)[0].items():
            self._observer.count("dropped", len(keys), label=namespace.name, reason="late")
        return True

    def tell(self, now: float) -> None:
        """Now and then: which clocks are off, where that has changed."""
        ways = (("behind", self._lateness.behind(now)), ("ahead of", self._lateness.ahead(now)))
        text = " and ".join(f"some are up to {seconds:.0f} s {way} ours" for way, seconds in ways if seconds)
        if text == self._told:
            return
        self._told = text
        if text:
            self._notices.trouble("clock_off", "", f"of the clocks of those who send hints {text}")
        else:
            self._notices.over("clock_off", "")
