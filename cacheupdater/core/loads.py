"""How long the loads of one namespace took lately: whether a slow one has a slow key, or its source is slow.

One `Loads` per namespace, shared by all engines. A slow load is compared with those that ran at the same time or just before. If
others took far less, for their sizes, then one of its keys is at fault (`slow_keys`), or the machine stood still for a moment.
While a machine stands still, no load ends. So where others ended all the time while a load ran, its key is at fault. If all
loads take long, there is nothing to compare with: then some units are smaller, and if these take as long, no key is at fault.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.slots import SLOWER, TIMES_AS_LONG

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_KEY_S = 0.2
"""Seconds: a load that took no longer has no slow key. Five connections load 5,000 keys a second at this pace. Busy machines have
pauses of a tenth of a second and more, and such a pause must not make suspects of all keys that it met."""

PIECES = 16
"""A unit of 200 keys is cut twice until its slow key is alone. Each cut costs the slow key's time once more, and quick pieces
next to nothing."""

LOADS = 32
"""Loads of a namespace that are remembered: where one key in a hundred is slow, four of them have no slow key."""

LATELY_S = 1.0
"""Seconds: a load that began longer before says nothing about the source as it is now."""

TRIED, TRIED_LEAST = 1, 1024
"""Of a namespace whose loads all take long, one unit in so many is a small one. Each such try doubles the number, until one
of them is quick: a try costs statements, and smaller units say nothing where every statement takes long."""


class Took(NamedTuple):
    """One load that has ended well."""

    began: float
    rows: int
    seconds: float


class Verdict(Enum):
    """Whose fault it is that a load was slow."""

    QUICK = "it was not"
    KEY = "one of its keys is slow"
    EITHER = "one of its keys is slow, or the machine stood still: no other load ended meanwhile"
    SOURCE = "the source is slow: others took as long"
    OPEN = "not known: no other ran, or a smaller unit will show it"


class Loads:
    """The last loads of one namespace, in all engines."""

    __slots__ = ("_every", "_last", "_per_row", "_untried", "tries")

    def __init__(self) -> None:
        self._last: deque[Took] = deque(maxlen=LOADS)
        self._per_row = inf  # seconds that a row takes at most, as the load with the most rows a second shows
        self._every = TRIED
        self._untried = 0  # slow units since the last try
        self.tries = False  # whether the next unit shall be a small one

    def judge(self, took: Took, *, apart: bool) -> Verdict:
        """This load has ended; of suspects, or not. Whose fault it is if it was slow."""
        self._per_row = min(self._per_row * (1.0 + SLOWER), took.seconds / took.rows)
        verdict = self._verdict(took, apart=apart)
        self._last.append(took)
        return verdict

    def _verdict(self, took: Took, *, apart: bool) -> Verdict:
        if took.seconds <= SLOW_KEY_S:
            return Verdict.QUICK
        if self._is_outpaced(took, took.seconds):
            self._every = TRIED
            moved = took.seconds - self._silence(took)
            return Verdict.KEY if moved > SLOW_KEY_S and self._is_outpaced(took, moved) else Verdict.EITHER
        if not apart and self._tries_next():
            return Verdict.OPEN
        return Verdict.SOURCE if self._comparable(took) else Verdict.OPEN

    def _is_outpaced(self, took: Took, seconds: float) -> bool:
        """Whether another load took far less than so many seconds, for its size, and not long before."""
        return any(
            seconds > TIMES_AS_LONG * (other.seconds + self._per_row * max(0, took.rows - other.rows))
            for other in self._lately(took)
        )

    def _silence(self, took: Took) -> float:
        """The longest time in which no other load ended while this one ran."""
        longest, since = 0.0, took.began
        for other in self._last:
            end = other.began + other.seconds
            longest, since = max(longest, end - since), max(since, end)
        return max(longest, took.began + took.seconds - since)

    def _comparable(self, took: Took) -> bool:
        """Whether any load ran at that time, with which this one can be compared."""
        return any(True for _ in self._lately(took))

    def _lately(self, took: Took) -> Iterator[Took]:
        since = took.began - LATELY_S
        return (other for other in self._last if other.began >= since)

    def unit_keys(self, most: int) -> int:
        """How many keys the next unit may have."""
        return max(1, most // PIECES) if self.tries else most

    def _tries_next(self) -> bool:
        """A unit was slow, and no other was quick: maybe a smaller one is, without a slow key in it."""
        self._untried += 1
        if self._untried >= self._every:
            self._untried, self._every, self.tries = 0, min(TRIED_LEAST, 2 * self._every), True
        return self.tries
