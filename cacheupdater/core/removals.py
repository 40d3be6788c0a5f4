"""Keys that must leave Redis because a change of theirs was dropped or quarantined: dropping never leaves an old value.

The engine collects them, the partition asks Redis for them, and their packs are not done before Redis has
acknowledged. A key that Redis itself refuses to remove (its floor holds another type) is given up in the end, with a
count. Lives as long as its engine.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.cursors import Origin


# Of one key, half a second apart: as often as a key may fail by itself before it is set aside.
REFUSALS_MAX = 5


@dataclass(slots=True)
class Invalidation:
    """One request to Redis; the origins are parallel to the keys and stay open meanwhile."""

    keys: list[bytes] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    refusals: int = 0  # of a single key


class Removals:
    """What Redis has been, or must be, asked to remove."""

    def __init__(self) -> None:
        self.open = 0  # keys that Redis has not acknowledged
        self._next = Invalidation()
        self._apart: deque[Invalidation] = deque()  # what Redis has refused, in parts

    def ask(self, keys: Sequence[bytes], origins: Sequence[Origin]) -> None:
        """These shall go with the next request. Their origins are open already."""
        self.open += len(keys)
        self._next.keys.extend(keys)
        self._next.origins.extend(origins)

    def take(self) -> Invalidation | None:
        """The next request, if there is anything in it."""
        if self._apart:
            return self._apart.popleft()
        if not self._next.keys:
            return None
        taken, self._next = self._next, Invalidation()
        return taken

    def answered(self, invalidation: Invalidation, *, done: bool) -> None:
        """Acknowledged, or to be asked for again."""
        if not done:
            self._next.keys += invalidation.keys
            self._next.origins += invalidation.origins
            return
        self._close(invalidation)

    def refused(self, invalidation: Invalidation) -> int:
        """One key at least is at fault: its neighbours go apart. How many are given up, for none may pin the cursor."""
        middle = len(invalidation.keys) // 2
        if middle:
            keys, origins = invalidation.keys, invalidation.origins
            self._apart.append(Invalidation(keys[:middle], origins[:middle]))
            self._apart.append(Invalidation(keys[middle:], origins[middle:]))
            return 0
        invalidation.refusals += 1
        if invalidation.refusals < REFUSALS_MAX:
            self._apart.append(invalidation)
            return 0
        self._close(invalidation)
        return 1

    def _close(self, invalidation: Invalidation) -> None:
        self.open -= len(invalidation.keys)
        for origin in invalidation.origins:
            origin.open -= 1
