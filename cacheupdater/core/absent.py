"""Rows known to be absent: for a while their misses cost the database nothing.

Only an accepted absent write sets a mark. A mark ends at any change or touch, or after `missing.ttl`. Marks are bounded in
time and number; beyond the number, the marks that end first are dropped. Whether a key is marked is exact at any moment.
Marks that are over are forgotten a few at a time, for the marks of a crawl end as close together as they were set. Marks of
one ttl end in the order in which they were set. So each ttl has a queue, and a heap says which queue is next: no entry
outlives its mark. Pure: the engine passes the time. Lives as long as its engine.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

_Queue: TypeAlias = "OrderedDict[bytes, float]"
"""When each mark of one ttl is over: in order."""


class AbsentMarks:
    """Which keys have no row, as far as we know."""

    def __init__(self, most: int, *, turn: int) -> None:
        """At most `most` marks at any time. One call forgets at most `turn` of those that are over."""
        self.now = 0.0
        self._most, self._turn = most, turn
        self._queue_of: dict[bytes, _Queue] = {}
        self._queues: dict[float, _Queue] = {}  # by ttl
        self._order: list[
            tuple[float, float]
        ] = []  # a heap: (end of a queue's first mark, or earlier; its ttl)

    def __contains__(self, key: bytes) -> bool:
        queue = self._queue_of.get(key)
        return queue is not None and queue[key] > self.now

    def __len__(self) -> int:
        return len(self._queue_of)

    @property
    def keys(self) -> set[bytes]:
        """The keys that take memory."""
        return set(self._queue_of)

    def without(self, keys: list[bytes]) -> list[bytes]:
        """These keys without those that may have a mark."""
        return [key for key in keys if key not in self._queue_of] if self._queue_of else keys

    def mark(self, keys: Iterable[bytes], ttl: float) -> None:
        """These rows were just found absent, and Redis has accepted it."""
        keys = list(keys)
        self._drop(keys)
        if ttl <= 0.0:
            return
        for key in keys:
            while len(self._queue_of) >= self._most and (first := self._first()) is not None:
                del self._queue_of[first.popitem(last=False)[0]]
            queue = self._queue(ttl)
            queue[key] = self.now + ttl
            self._queue_of[key] = queue

    def end(self, keys: Iterable[bytes]) -> None:
        """These keys were read or changed: their marks mean nothing any more."""
        if self._queue_of:
            self._drop([*filter(self._queue_of.__contains__, keys)])

    def expire(self, now: float) -> None:
        """Forget marks that are over, at most as many as one turn may."""
        self.now = max(self.now, now)
        for _ in range(self._turn):
            if not self._order or self._order[0][0] > self.now or (queue := self._first()) is None:
                return
            if self._order[0][0] > self.now:
                return
            del self._queue_of[queue.popitem(last=False)[0]]

    def _drop(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if (queue := self._queue_of.pop(key, None)) is not None:
                del queue[key]

    def _queue(self, ttl: float) -> _Queue:
        queue = self._queues.get(ttl)
        if queue is None:
            queue = self._queues[ttl] = OrderedDict()
            heappush(self._order, (self.now + ttl, ttl))
        return queue

    def _first(self) -> _Queue | None:
        """The queue whose first mark ends first. Marks have left since the heap was ordered, so it is repaired here."""
        while self._order:
            end, ttl = self._order[0]
            queue = self._queues[ttl]
            if not queue:
                heappop(self._order)
                del self._queues[ttl]
            elif (true := next(iter(queue.values()))) > end:
                heapreplace(self._order, (true, ttl))
            else:
                return queue
        return None
