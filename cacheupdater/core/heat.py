"""How much a waiting miss is wanted, and the queues in which hotter misses stand before colder ones.

After a flush far more keys are missing than a second can load. Then the order decides how soon readers hit again, so a miss
has a *heat*: how many readers have asked for its key, and how many the policy expects while it may wait, as a power of two.
`unit` counts who asks, `seating` asks the policy, `schedule` says whether the order matters at all. In a backlog each peer
has one `ByHeat` per urgency, so heat decides among the keys of one peer only. Within a heat the oldest key goes first. A cold
key waits no longer than any other may: `aged` looks at each queue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Item = TypeVar("Item")

HOTTEST = 12
"""The greatest heat: 4096 readers and more. A key with so many is served within a turn or two anyway."""


def heat_of(asks: int) -> int:
    """The heat of a miss for which so many readers have asked. To rise once more, it takes twice as many."""
    return min(asks.bit_length() - 1, HOTTEST)


def by_heat(keys: Sequence[bytes], asks: Sequence[int]) -> dict[int, list[bytes]]:
    """These keys by the fewest readers of their heat."""
    groups: dict[int, list[bytes]] = {}
    for key, readers in zip(keys, asks, strict=True):
        groups.setdefault(1 << heat_of(readers), []).append(key)
    return groups


class ByHeat(Generic[Item]):
    """The due units of one peer: one queue per heat, each in the order of arrival. Almost always there is only one queue."""

    __slots__ = ("_queues", "coldest")

    def __init__(self) -> None:
        self.clear()

    def __bool__(self) -> bool:
        return bool(self.coldest) or (len(self._queues) > 1 and any(self._queues))

    def __iter__(self) -> Iterator[deque[Item]]:
        """The queues in which a unit waits, the coldest first."""
        return filter(None, self._queues)

    @property
    def first(self) -> deque[Item]:
        """The queue with the hottest units; an empty one if nothing waits."""
        queues = self._queues
        while not queues[-1] and len(queues) > 1:
            queues.pop()
        return queues[-1]

    def of(self, heat: int) -> deque[Item]:
        """The queue of this heat."""
        while len(self._queues) <= heat:
            self._queues.append(deque())
        return self._queues[heat]

    def clear(self) -> None:
        """Nothing waits any more."""
        self.coldest: deque[Item] = deque()
        """The queue of what nobody else has asked for: of heat 0."""
        self._queues = [self.coldest]  # the coldest first
