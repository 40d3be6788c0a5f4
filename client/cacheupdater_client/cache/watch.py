"""Waiting until leases end or floors move, for all waiting threads of a cache: one MGET every 10 ms, however many wait.

There is no thread of its own: one of the waiting threads asks, and the next one takes over when it leaves. A lease ends
when its key is gone, which its holder sees to after the fill, and Redis if the holder has died. A floor moves when an updater
has written its key. What is awaited is any object that can be sorted: a key for its lease, a key and its floor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar

from cacheupdater_client.cache import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

POLL_S = 0.01  # between two looks; a load takes some milliseconds at least


One = TypeVar("One", bytes, tuple[bytes, bytes])
"""What is awaited: the end of a key's lease, or the move of its floor from what it was."""


@dataclass(slots=True, eq=False)
class Waiter(Generic[One]):
    """A caller and what it awaits."""

    keys: set[One]
    over: Event = field(default_factory=Event)


class Waiters(Generic[One]):
    """Who awaits what. No I/O, no clock: the two watches share it."""

    def __init__(self) -> None:
        self._waiting: set[Waiter[One]] = set()
        self._began = self._next = float("-inf")  # the last look; the earliest moment of the next one

    def add(self, waiter: Waiter[One]) -> None:
        """This caller waits."""
        self._waiting.add(waiter)

    def remove(self, waiter: Waiter[One]) -> None:
        """This caller does not wait any more."""
        self._waiting.discard(waiter)

    def due(self, now: float) -> list[Waiter[One]]:
        """The callers to ask for now; none if the last look was a moment ago, or if nobody waits any more."""
        if now < self._next:
            return []
        self._began, self._next = now, now + POLL_S
        # a caller whose keys are free stays here until its thread or task has run
        return [waiter for waiter in self._waiting if waiter.keys]

    def answered(self, now: float) -> None:
        """The last look has its answer. If it took long, so does the pause: ten thousand keys must not fill the process."""
        self._next = max(self._next, now + (now - self._began))


def keys_of(waiters: Iterable[Waiter[One]]) -> list[One]:
    """What they await, each once."""
    return sorted(set().union(*(waiter.keys for waiter in waiters)))


def freed(waiters: Sequence[Waiter[One]], keys: Sequence[One], held: Iterable[bool]) -> list[Waiter[One]]:
    """Those whose wait is over. A caller that came after the question has no part in the answer."""
    ended = {key for key, still in zip(keys, held, strict=True) if not still}
    for waiter in waiters:
        waiter.keys -= ended
    return [waiter for waiter in waiters if not waiter.keys]


class Watch(Generic[One]):
    """The waiting of one sync cache. `held` asks Redis whether each is still as it was."""

    def __init__(self, held: Callable[[Sequence[One]], list[bool]]) -> None:
        self._held: Callable[[Sequence[One]], list[bool]] = held
        self.begin()
        forks.enrol(self)

    def begin(self) -> None:
        """Nobody waits."""
        self._lock = Lock()
        self._asking = Lock()  # held by the thread that asks
        self._waiters: Waiters[One] = Waiters()

    def rest(self, keys: Iterable[One], within: float) -> float:
        """Returns when none of these is as it was, or after `within` seconds. Returns the seconds that are left."""
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
        return ends - monotonic()

    def _ask(self) -> None:
        with self._lock:
            waiters = self._waiters.due(monotonic())
        if not waiters:
            return
        keys = keys_of(waiters)
        held = self._held(keys)
        with self._lock:
            self._waiters.answered(monotonic())
        for waiter in freed(waiters, keys, held):
            waiter.over.set()
