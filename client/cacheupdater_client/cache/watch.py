"""Waiting until leases end, for all waiting threads of a cache: one MGET every 10 ms, however many wait.

There is no thread of its own: one of the waiting threads asks, and the next one takes over when it leaves. A lease ends
when its key is gone, which its holder sees to after the fill, and Redis if the holder has died.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING

from cacheupdater_client.cache import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

POLL_S = 0.01  # between two looks; a load takes some milliseconds at least


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller and the keys for whose leases it waits."""

    keys: set[bytes]
    over: Event = field(default_factory=Event)


class Waiters:
    """Who waits for which leases. No I/O, no clock: the two watches share it."""

    def __init__(self) -> None:
        self._waiting: set[Waiter] = set()
        self.asked = float("-inf")  # when the last look began

    def add(self, waiter: Waiter) -> None:
        """This caller waits."""
        self._waiting.add(waiter)

    def remove(self, waiter: Waiter) -> None:
        """This caller does not wait any more."""
        self._waiting.discard(waiter)

    def due(self, now: float) -> list[Waiter]:
        """The callers to ask for now; none if the last look was a moment ago, or if nobody waits any more."""
        if now - self.asked < POLL_S:
            return []
        self.asked = now
        # a caller whose keys are free stays here until its thread or task has run
        return [waiter for waiter in self._waiting if waiter.keys]


def keys_of(waiters: Iterable[Waiter]) -> list[bytes]:
    """The keys for whose leases they wait."""
    return sorted(set().union(*(waiter.keys for waiter in waiters)))


def freed(waiters: Sequence[Waiter], keys: Sequence[bytes], leased: Iterable[bool]) -> list[Waiter]:
    """Those whose wait is over. A caller that came after the question has no part in the answer."""
    ended = {key for key, held in zip(keys, leased, strict=True) if not held}
    for waiter in waiters:
        waiter.keys -= ended
    return [waiter for waiter in waiters if not waiter.keys]


class Watch:
    """The waiting of one sync cache."""

    def __init__(self, leased: Callable[[Sequence[bytes]], list[bool]]) -> None:
        self._leased = leased
        self.begin()
        forks.enrol(self)

    def begin(self) -> None:
        """Nobody waits."""
        self._lock = Lock()
        self._asking = Lock()  # held by the thread that asks
        self._waiters = Waiters()

    def rest(self, keys: Iterable[bytes], within: float) -> None:
        """Returns when none of these keys has a lease, or after `within` seconds."""
        waiter, ends = Waiter(set(keys)), monotonic() + within
        with self._lock:
            self._waiters.add(waiter)
        try:
            while (left := ends - monotonic()) > 0 and not waiter.over.wait(min(POLL_S, left)):
                if self._asking.acquire(blocking=False):
                    try:
                        self._ask()
                    finally:
                        self._asking.release()
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def _ask(self) -> None:
        with self._lock:
            waiters = self._waiters.due(monotonic())
        if not waiters:
            return
        keys = keys_of(waiters)
        for waiter in freed(waiters, keys, self._leased(keys)):
            waiter.over.set()
