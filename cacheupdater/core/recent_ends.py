"""When keys that have no seat any more were last refreshed: that refresh has served a miss within `gap` after it.

One per `dedup`, which reports the seats that are given up within the gap, unit by unit. Only a miss asks about keys, and only
then are they looked at: where nothing is missed, this costs next to nothing. Two tables take turns. So forgetting costs no
look at each key, and no key is kept for longer than two gaps. `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class RecentEnds:
    """The last ends of one partition's keys."""

    def __init__(self, gap: float) -> None:
        self.wake = inf  # when the next turn is due; never while there is nothing to forget
        self._gap = gap
        self._reported: list[tuple[float, Sequence[bytes]]] = []  # (until when, keys)
        self._young: dict[bytes, float] = {}
        self._old: dict[bytes, float] = {}

    def __len__(self) -> int:
        return sum(len(keys) for _, keys in self._reported) + len(self._young) + len(self._old)

    def put(self, keys: Sequence[bytes], ended: float, now: float) -> None:
        """The refresh of these keys ended at `ended`, and they leave their seats now."""
        if ended + self._gap > now:
            self._reported.append((ended + self._gap, keys))
            if self.wake == inf:
                self.wake = now + self._gap

    def soon(self, key: bytes, now: float) -> bool:
        """Whether `now` is within a gap of the key's last end."""
        self._sort_in(now)
        return now < self._young.get(key, self._old.get(key, -inf))

    def without(self, keys: list[bytes], now: float) -> list[bytes]:
        """These keys without those of which an end may be remembered."""
        self._sort_in(now)
        young, old = self._young, self._old
        return [key for key in keys if key not in young and key not in old] if young or old else keys

    def _sort_in(self, now: float) -> None:
        """What was reported since the last question can be asked for."""
        for until, keys in self._reported:
            if until > now:
                self._young.update(dict.fromkeys(keys, until))
        self._reported.clear()

    def turn(self, now: float) -> None:
        """If a turn is due, forget what was reported before the last one: its gap is over."""
        if now >= self.wake:
            self._reported = [each for each in self._reported if each[0] > now]
            self._old, self._young = self._young, {}
            self.wake = now + self._gap if self._reported or self._old else inf
