"""When keys that have no seat any more were refreshed last: a miss within `gap` of that has been served by it.

One per `dedup`, which tells it of seats that are given up so early, by the unit; only a miss asks about keys. So that this costs
next to nothing where nothing is missed, keys are looked at when somebody asks. Two tables take turns, and nobody looks at a key
twice to forget it: none is kept for longer than two gaps. `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Ends:
    """One partition's."""

    def __init__(self, gap: float) -> None:
        self.wake = inf  # when the next turn is due; never while there is nothing to forget
        self._gap = gap
        self._told: list[tuple[float, Sequence[bytes]]] = []  # (until when, keys)
        self._young: dict[bytes, float] = {}
        self._old: dict[bytes, float] = {}

    def __len__(self) -> int:
        return sum(len(keys) for _, keys in self._told) + len(self._young) + len(self._old)

    def put(self, keys: Sequence[bytes], ended: float, now: float) -> None:
        """Their refresh has ended then, and they leave their seats now."""
        if ended + self._gap > now:
            self._told.append((ended + self._gap, keys))
            if self.wake == inf:
                self.wake = now + self._gap

    def soon(self, key: bytes, now: float) -> bool:
        """Whether this is within a gap of the key's last end."""
        if self._told:
            for until, keys in self._told:
                if until > now:
                    self._young.update(dict.fromkeys(keys, until))
            self._told.clear()
        return now < self._young.get(key, self._old.get(key, -inf))

    def turn(self, now: float) -> None:
        """Forget what was told before the last turn, if it is time for one: its gap is over."""
        if now >= self.wake:
            self._told = [told for told in self._told if told[0] > now]
            self._old, self._young = self._young, {}
            self.wake = now + self._gap if self._told or self._old else inf
