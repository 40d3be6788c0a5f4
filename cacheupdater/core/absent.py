"""Rows known to be absent: for a while their misses cost the database nothing.

A mark is set only by an accepted absent write and ends at any change or touch, or after `missing.ttl`. The
`TLRUCache` bounds it in time and number; the set beside it answers whole batches of touches in C. Pure: the
cache's timer is the engine's `now`. Lives as long as its engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachetools import TLRUCache

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Marks(TLRUCache[bytes, float]):
    """Tells its owner what it lets go."""

    def __init__(self, maxsize: int, owner: AbsentMarks) -> None:
        super().__init__(maxsize, ttu=lambda _key, ttl, now: now + ttl, timer=lambda: owner.now)
        self._owner = owner

    def popitem(self) -> tuple[bytes, float]:
        item = super().popitem()
        self._owner.keys.discard(item[0])
        return item


class AbsentMarks:
    """Which keys have no row, as far as we know."""

    def __init__(self, most: int) -> None:
        self.now = 0.0
        self.keys: set[bytes] = set()
        self._marks = _Marks(most, self)

    def __contains__(self, key: object) -> bool:
        return key in self.keys and key in self._marks

    def __len__(self) -> int:
        return len(self.keys)

    def mark(self, keys: Iterable[bytes], ttl: float) -> None:
        """These rows were just found absent, and Redis has accepted it."""
        for key in keys:
            self._marks[key] = ttl
            if key in self._marks:
                self.keys.add(key)
            else:  # a ttl of zero takes an older mark away
                self.keys.discard(key)

    def end(self, keys: Iterable[bytes]) -> None:
        """These keys were read or changed: the marks mean nothing any more."""
        for key in self.keys.intersection(keys) if self.keys else ():
            self.keys.discard(key)
            self._marks.pop(key, None)

    def expire(self, now: float) -> None:
        """Forget what is over."""
        self.now = max(self.now, now)
        if self.keys:
            self.keys.difference_update(key for key, _ in self._marks.expire(self.now) or ())
