"""Which refreshes run in this process, and the threads of a sync cache that run them.

A reader that finds an old value hands the load over to here. Each key has one refresh at a time. After a failed load its key
has a pause. `Background` starts threads when there is work, at most THREADS_MAX, and they end with the work. They are daemons:
no exit waits for them. An application that wants its refreshes ended before its Redis client closes the cache first.
`cacheupdater_client.asyncio.background` runs refreshes as tasks.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING

from cacheupdater_client.cache import forks
from cacheupdater_client.cache.ageing import PAUSE_MS
from cacheupdater_client.cache.flights import AGAIN, Flight
from cacheupdater_client.cache.steps import Begun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

THREADS_MAX = (
    4  # loads at the same time, which share the application's pool of connections with its own threads
)
LOST_TIMEOUTS = 3  # of a load: a hung one may keep its thread for ever
CLOSE_S = (
    1.0  # for which a cache that is closed waits for its refreshes, as the client waits for its hints at exit
)
KEYS_MAX = 10_000  # that are refreshed or have a pause; beyond this readers get the old value, and nobody refreshes it


@dataclass(slots=True)
class Refresh:
    """A refresh of one key."""

    flight: Flight
    late_at: float  # from then on readers are told that it is overdue, once in a pause
    lost_at: float  # from then on another one may begin: its thread hangs, or its event loop has gone


class Refreshes:
    """The refreshes of one cache by key. No I/O; the caller holds a lock where there are threads."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._running: dict[bytes, Refresh] = {}
        self._paused: dict[bytes, float] = {}  # until

    def take(self, keys: Iterable[bytes], timeout_s: float) -> tuple[dict[bytes, Flight], Begun]:
        """New flights for keys that are not refreshed and have no pause; and what there is for the reader to wait for.

        `timeout_s`: a refresh that takes longer is overdue.
        """
        now, new, begun = self._now(), {}, Begun({}, [])
        for key in keys:
            running = self._running.get(key)
            if running is None or now >= running.lost_at:
                if self._has_pause(key, now) or len(self._running) + len(self._paused) >= KEYS_MAX:
                    continue
                running = Refresh(Flight(), now + timeout_s, now + LOST_TIMEOUTS * timeout_s)
                self._running[key] = running
                new[key] = running.flight
            elif now >= running.late_at:
                running.late_at = now + PAUSE_MS / 1000
                begun.overdue.append(key)
            begun.flights[key] = running.flight
        return new, begun

    def busy(self, keys: Iterable[bytes], timeout_s: float) -> Begun | None:
        """What there is to wait for, if no refresh can begin for any of these keys. None: one can begin."""
        now = self._now()
        for key in keys:
            running = self._running.get(key)
            if not (self._has_pause(key, now) if running is None else now < running.lost_at):
                return None
        return self.take(keys, timeout_s)[1]

    def end(self, flights: Mapping[bytes, Flight]) -> None:
        """These refreshes are over. Those that brought no value have a pause."""
        until = self._now() + PAUSE_MS / 1000
        for key, flight in flights.items():
            flight.land(AGAIN)  # unless it has landed or failed
            if (running := self._running.get(key)) is not None and running.flight is flight:
                del self._running[key]
            if flight.outcome.exception() is not None or flight.outcome.result() is AGAIN:
                self._paused[key] = until

    def _has_pause(self, key: bytes, now: float) -> bool:
        if len(self._paused) >= KEYS_MAX // 2:
            self._paused = {each: until for each, until in self._paused.items() if until > now}
        if (until := self._paused.get(key)) is None:
            return False
        if until <= now:
            del self._paused[key]
        return until > now


class Background:
    """The threads of one sync cache."""

    def __init__(self) -> None:
        self._closed = False
        self.begin()
        forks.enrol(self)

    def begin(self) -> None:
        """Nothing runs."""
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._refreshes = Refreshes()
        self._queue: deque[Callable[[], object]] = deque()
        self._threads = 0

    def close(self, timeout: float) -> None:
        """No load begins from now on. Waits for those that have begun, for at most so many seconds."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._idle.wait_for(lambda: not self._threads, timeout)

    def start(
        self, keys: Iterable[bytes], timeout_s: float, run: Callable[[Mapping[bytes, Flight]], object]
    ) -> Begun:
        """Has `run` called in a thread, with the flights of keys that nobody refreshes yet."""
        with self._lock:
            new, begun = self._refreshes.take(() if self._closed else keys, timeout_s)
        if new:
            self.call(lambda: self._run(run, new))
        return begun

    def busy(self, keys: Iterable[bytes], timeout_s: float) -> Begun | None:
        """As `Refreshes.busy`. Of a closed cache nothing can begin."""
        with self._lock:
            return self._refreshes.busy(() if self._closed else keys, timeout_s)

    def call(self, work: Callable[[], object]) -> None:
        """Has this called in a thread. Its errors go nowhere."""
        with self._lock:
            if self._closed or len(self._queue) >= KEYS_MAX:
                return
            self._queue.append(work)
            if self._threads >= THREADS_MAX:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._work, name="cacheupdater-refresh", daemon=True).start()
        except (
            RuntimeError
        ):  # no more threads, or the interpreter is shutting down; the work waits for the next call
            with self._lock:
                self._threads -= 1

    def _run(self, run: Callable[[Mapping[bytes, Flight]], object], flights: Mapping[bytes, Flight]) -> None:
        try:
            run(flights)
        finally:
            with self._lock:
                self._refreshes.end(flights)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    self._idle.notify_all()
                    return
                work = self._queue.popleft()
            with contextlib.suppress(Exception):  # the loader's, which the steps have counted
                work()
