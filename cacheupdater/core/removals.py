"""Keys that must leave Redis because a change of theirs was dropped or quarantined: dropping never leaves an old value.

The engine collects them, the partition asks Redis for them, and their packs are not done before Redis has
acknowledged. Nothing is given up while Redis cannot be reached. A key that Redis itself refuses to remove (the user has no
right to it, its floor holds another type) is given up in the end, with a count: it must not pin its pack for ever.
Lives as long as its engine.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import starmap
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.answers import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.answers import Answer
    from cacheupdater.core.cursors import Origin


# gone; or not ours to remove
_THROUGH = frozenset({Result.WRITTEN, Result.FOREIGN})
AGAIN = 0.5  # seconds before what Redis did not remove is asked for again
REFUSALS_MAX = 5  # as often as a key may fail by itself before it is set aside
REFUSED_FOR = 30.0  # seconds of refusals, as long as a hint may wait; outages between them do not count


@dataclass(slots=True)
class Removal:
    """One key; the origin stays open meanwhile."""

    key: bytes
    origin: Origin
    refusals: int = 0
    refused_for: float = 0.0  # seconds


@dataclass(frozen=True, slots=True)
class Invalidation:
    """One request to Redis."""

    removals: list[Removal]
    asked: float

    @property
    def keys(self) -> list[bytes]:
        """In the order of the answers."""
        return [each.key for each in self.removals]


class Removals:
    """What Redis has been, or must be, asked to remove."""

    def __init__(self) -> None:
        self.open = 0  # keys that Redis has not acknowledged
        self._next: list[Removal] = []
        self._later: deque[tuple[float, Removal]] = deque()  # when to ask again: in order, for all wait alike

    @property
    def wake(self) -> float:
        """When the next removal is asked for again."""
        return self._later[0][0] if self._later else inf

    def ask(self, keys: Sequence[bytes], origins: Sequence[Origin]) -> None:
        """These shall go with the next request. Their origins are open already."""
        self.open += len(keys)
        self._next.extend(starmap(Removal, zip(keys, origins, strict=True)))

    def take(self, now: float) -> Invalidation | None:
        """The next request, if there is anything in it."""
        while self._later and self._later[0][0] <= now:
            self._next.append(self._later.popleft()[1])
        if not self._next:
            return None
        taken, self._next = self._next, []
        return Invalidation(taken, now)

    def unanswered(self, invalidation: Invalidation, now: float) -> None:
        """Redis could not be reached: all of it again, as often as it takes."""
        self._later.extend((now + AGAIN, each) for each in invalidation.removals)

    def answered(self, invalidation: Invalidation, answers: Sequence[Answer], now: float) -> list[bytes]:
        """Each key is gone, or asked for again, or given up: these are returned."""
        given_up = []
        for removal, answer in zip(invalidation.removals, answers, strict=True):
            if answer.result in _THROUGH:
                self._close(removal)
            elif answer.result is Result.FAILED and self._refused(removal, now - invalidation.asked):
                self._close(removal)
                given_up.append(removal.key)
            else:
                self._later.append((now + AGAIN, removal))
        return given_up

    def _refused(self, removal: Removal, seconds: float) -> bool:
        """Whether that was once too often."""
        removal.refusals += 1
        removal.refused_for += seconds + AGAIN
        return removal.refusals >= REFUSALS_MAX or removal.refused_for >= REFUSED_FOR

    def _close(self, removal: Removal) -> None:
        self.open -= 1
        removal.origin.open -= 1
