"""Which batches of a feed may be confirmed: a batch is safe once all its keys are, and counts only after all before it.

The reader adds a batch when its keys are on their way, and takes the position of the last batch that may be confirmed. Lives
from the start of a feed to its end or its next error: then what was not confirmed comes again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from cacheupdater.feed_ports import Position

Safe: TypeAlias = Callable[[], bool]
"""Whether some keys are safe by now: in a queue that outlives this process, or refreshed or removed."""


class _Batch(NamedTuple):
    safe: list[Safe]
    position: Position


class Ledger:
    """The batches that are not confirmed, in their order."""

    def __init__(self) -> None:
        self._batches: deque[_Batch] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, safe: Sequence[Safe], position: Position) -> None:
        """The next batch, which is safe once all of these are."""
        self._batches.append(_Batch(list(safe), position))

    def take(self) -> Position | None:
        """The last position before which everything is safe; None: nothing new."""
        position: Position | None = None
        while self._batches:
            batch = self._batches[0]
            while batch.safe and batch.safe[-1]():
                batch.safe.pop()
            if batch.safe:
                break
            position = self._batches.popleft().position
        return position
