"""Follows single changes: committed, invalidated, fresh again in Redis.

It runs in a thread of its own, for it looks every millisecond. Its client leaves no hints, so that looking changes nothing.
The back office offers it every change; it takes the next one when it has time.
"""

from __future__ import annotations

import json
import threading
import time
from queue import Empty, Full, Queue, SimpleQueue
from typing import TYPE_CHECKING

from redis import Redis

from cacheupdater.demo import plan
from cacheupdater.demo.lanes import TOLD

if TYPE_CHECKING:
    from cacheupdater.demo.shop import Change

_LOOK_S = 0.001  # as exact as the printed times
_GIVE_UP_S = 2.0  # the updater takes 50 ms; after so long it is not running


class Follower(threading.Thread):
    """`offer` changes; lines of text come out of `said`."""

    def __init__(self, redis_url: str) -> None:
        super().__init__(name="follower", daemon=True)
        self.said: SimpleQueue[str] = SimpleQueue()  # a line in three seconds
        self.since = time.monotonic()  # what the printed seconds count from
        self.paused = True
        self._cache = Redis.from_url(redis_url)
        self._offered: Queue[Change] = Queue(maxsize=1)
        self._next = 0.0
        self._stopping = threading.Event()

    def offer(self, change: Change) -> None:
        """Takes the change, or ignores it while busy or paused. Never waits."""
        if not self.paused and change.committed >= self._next:
            try:
                self._offered.put_nowait(change)
            except Full:
                return
            self._next = change.committed + plan.FOLLOW_S

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self.is_alive():
            self.join(plan.EOF_TIMEOUT_S)
        self._cache.close()

    def run(self) -> None:
        """Follows changes until `stop`."""
        while not self._stopping.is_set():
            try:
                change = self._offered.get(timeout=0.1)
            except Empty:
                continue
            self.said.put(self._followed(change))

    def _followed(self, change: Change) -> str:
        at = change.committed - self.since
        told = (
            f"product {change.product}: committed at {at:.3f} s, invalidated {self._second(change.announced)}"
        )
        while time.monotonic() < change.committed + _GIVE_UP_S and not self._stopping.is_set():
            body = self._cache.get(TOLD.key(change.product))
            if isinstance(body, bytes) and json.loads(body)["version"] >= change.version:
                return f"{told}, fresh {self._second(time.monotonic())}"
            time.sleep(_LOOK_S)
        return f"{told}; its next reader will load it"

    def _second(self, at: float) -> str:
        return f"{at - self.since:.3f}"
