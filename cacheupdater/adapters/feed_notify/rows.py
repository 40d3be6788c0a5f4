"""Makes changes of the rows of an outbox, and remembers which were read, told and confirmed. Pure.

`feed` gives a `Ledger` what it has read, and asks it for batches; a `Floor` says where the next look begins. Both live from a start of the feed to the next.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from cacheupdater.feed_ports import Batch, Changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cacheupdater.feed_ports import Cell

CHANGES_MAX = 200  # of one batch, about, for a row of the outbox is not divided: 3 ms of the event loop
_WHOLE = {"smallint", "integer", "bigint"}


class Line(NamedTuple):
    """A row of the outbox."""

    id: int
    at: float  # seconds since 1970, by the database's clock, before the commit
    name: str
    cells: str  # JSON: what `outbox.body` writes


class Floor:
    """The id up to which all rows were read, or never come.

    An id is given to a transaction that has a number already, because the trigger runs after its rows were written. So whoever
    was given an id up to one that is visible now has a smaller number than the next transaction, and is over when the oldest
    transaction that runs is that one or a later one.
    """

    def __init__(self) -> None:
        self.id = 0
        # an id, and the number that the oldest transaction must reach before it is the floor
        self._next: tuple[int, int] | None = None

    def read(self, last: int, *, oldest: int, following: int) -> None:
        """All rows that are visible up to `last` were read; transactions with numbers from `oldest` on may still run."""
        if self._next is not None and oldest >= self._next[1]:
            self.id = min(self._next[0], last)  # a look may end before that id
            if self.id == self._next[0]:
                self._next = None
        if self._next is None and last > self.id:
            self._next = (last, following)


class Ledger:
    """Which rows of the outbox were told, in their order."""

    def __init__(self, types: Mapping[str, str]) -> None:
        """`types`: by table, the types of its columns as JSON."""
        self._types = {name: msgspec.json.decode(said, type=dict[str, str]) for name, said in types.items()}
        self._told: deque[tuple[int, int]] = deque()  # number of the batch, and id
        self._batches = 0
        self.open: set[int] = set()  # ids that were read and are not deleted

    def batches(self, lines: Iterable[Line]) -> Iterable[Batch]:
        """What new lines tell, in batches."""
        changes: list[Changed] = []
        emptied: dict[str, str] = {}
        at = None
        for line in lines:
            if len(changes) >= CHANGES_MAX:
                yield self._batch(changes, at, emptied)
                changes, emptied = [], {}
            self.open.add(line.id)
            self._told.append((self._batches, line.id))
            said = msgspec.json.decode(line.cells)
            if isinstance(said, str):
                emptied[line.name] = _why(said)
            else:
                changes += self._changes(line.name, said)
            at = line.at
        if changes or emptied:
            yield self._batch(changes, at, emptied)

    def quiet(self) -> Batch:
        """An empty batch."""
        return self._batch([], None, {})

    def confirmed(self, position: object) -> list[int]:
        """The ids that may be deleted."""
        assert isinstance(position, int)
        ids = []
        while self._told and self._told[0][0] <= position:
            ids.append(self._told.popleft()[1])
        return ids

    def deleted(self, ids: Iterable[int]) -> None:
        """These will not be read again."""
        self.open.difference_update(ids)

    def _batch(self, changes: list[Changed], at: float | None, emptied: Mapping[str, str]) -> Batch:
        self._batches += 1
        why = "; ".join(dict.fromkeys(emptied.values()))
        return Batch(changes, self._batches - 1, at, tuple(emptied), why)

    def _changes(self, name: str, said: Any) -> list[Changed]:
        types = self._types.get(name, {})
        was, alive = ([_cells(each, types) for each in said.get(side) or ()] for side in ("was", "is"))
        if len(was) == len(alive) == 1:  # a row whose watched columns have changed
            return [Changed(name, [*was, *alive])]
        return [Changed(name, [each]) for each in (*was, *alive)]


def _why(event: str) -> str:
    if event == "TRUNCATE":
        return "the table was truncated"
    return "the table has lost a column that its triggers tell: run `cacheupdater changes install`"


def _cells(texts: Mapping[str, str | None], types: Mapping[str, str]) -> dict[str, Cell]:
    return {
        name: None if text is None else _reader(types.get(name, ""))(text) for name, text in texts.items()
    }


def _reader(kind: str) -> Callable[[str], Cell]:
    if kind in _WHOLE:
        return int
    return UUID if kind == "uuid" else str
