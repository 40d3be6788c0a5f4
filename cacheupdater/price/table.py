"""What is known of each key, in arrays: a row per key, no object beside the key itself.

One per `policy`. A key's row is found through `slots`; rows of forgotten keys are used again. The columns that one hint
touches lie side by side, so that a key costs one or two cache lines and not ten. Columns that only some configurations need
(silent changes, versions) are made when the first key needs them. Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from cacheupdater.price.slots import Slots, tags_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T", bound=np.generic)

Rows: TypeAlias = NDArray[np.int32]
"""Indices into the table."""

A, B, SLOW, FAST, PALM, SEEN, SPACE, STATUS = range(8)
"""Columns of `state`: the posterior's a and b, the two decayed read counts, the usual fast count just before a read,
how many observations that is made of, the number of the namespace, and one of the four below."""

TOUCHED, LOADED = range(2)
"""Columns of `times`: last read; beginning of the last load."""

IDLE, ASKED, STALE, WAITS = 0.0, 1.0, 2.0, 3.0
"""STATUS: nothing under way; a load was asked for; a change was announced, so the value is known to be stale;
the same, and the change waits for a quiet moment."""

_WHOLE = "V32"  # a row of `state`
_FIRST = 1024  # rows of an empty table: 60 KB
_GROWTH = 1.5  # doubling would leave half of a large table unused
_COPIED = 65_536  # rows of the largest table that is copied, 4 MB in 2 ms; a larger one gets its full size


class Table:
    """Rows by key. At most `most` keys."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._slots = Slots(most)
        self.keys: list[bytes | None] = []
        self.state: NDArray[np.float32] = np.zeros((_FIRST, 8), np.float32)
        self.times: NDArray[np.float64] = np.zeros((_FIRST, 2), np.float64)
        self.due: NDArray[np.float64] = np.zeros(_FIRST, np.float64)
        """When a row is looked at again though nobody reads it. No array says anything of rows beyond `high`."""
        self.silent: NDArray[np.float32] | None = None
        """a and b of the changes that nobody announced, once somebody announces any."""
        self.stamp: NDArray[np.float64] | None = None
        """What the row said at the last load (nan: nothing): its version, or the moment of its last change."""
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.keys) - len(self._free)

    @property
    def full(self) -> bool:
        return len(self) >= self.most

    @property
    def high(self) -> int:
        """Rows beyond this one were never used."""
        return len(self.keys)

    def find(self, keys: Sequence[bytes]) -> Rows:
        """The row of each key, -1 for a stranger."""
        return self._slots.find(tags_of(keys))

    def known(self, keys: Sequence[bytes]) -> Rows:
        """The rows of those of the keys that are no strangers."""
        rows = self.find(keys)
        return rows[rows >= 0]

    def look(self, rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Copies of `state` and `times`: seven times as fast as by an index array."""
        return self.state.take(rows, axis=0), self.times.take(rows, axis=0)

    def put(self, rows: Rows, state: NDArray[np.float32]) -> None:
        """All of `state` for these rows, each as one element: four times as fast as by an index array."""
        self.state.view(_WHOLE).put(rows, state.view(_WHOLE))

    def named(self, rows: Rows) -> list[bytes]:
        """The keys of rows that are in use."""
        keys = self.keys
        return [key for row in rows.tolist() if (key := keys[row]) is not None]

    def admit(self, keys: Sequence[bytes]) -> Rows:
        """Rows for these strangers, as far as there is room; zeroed, due never."""
        keys = keys[: self.most - len(self)]
        reused = [self._free.pop() for _ in range(min(len(self._free), len(keys)))]
        first = len(self.keys)
        added = len(keys) - len(reused)
        self._reserve(first + added)
        for row, key in zip(reused, keys, strict=False):
            self.keys[row] = key
        self.keys.extend(keys[len(reused) :])
        rows = np.array([*reused, *range(first, first + added)], np.int32)
        self._slots.add(tags_of(keys), rows)
        self._blank(rows)
        return rows

    def forget(self, rows: Rows) -> None:
        """These keys are strangers again."""
        used = [row for row in np.unique(rows).tolist() if self.keys[row] is not None]
        rows = np.array(used, np.int32)
        self._slots.remove(tags_of(self.named(rows)), rows)
        self._free.extend(used)
        for row in used:
            self.keys[row] = None
        self.due[rows] = np.inf

    def with_silent(self) -> NDArray[np.float32]:
        """The posterior of silent changes; until the first announcement it was that of all changes."""
        if self.silent is None:
            self.silent = np.zeros((len(self.due), 2), np.float32)
            self.silent[: self.high] = self.state[: self.high, (A, B)]
        return self.silent

    def with_stamp(self) -> NDArray[np.float64]:
        """What rows have said."""
        if self.stamp is None:
            self.stamp = np.zeros(len(self.due), np.float64)
            self.stamp[: self.high] = np.nan
        return self.stamp

    def _blank(self, rows: Rows) -> None:
        self.state[rows] = 0.0
        self.times[rows] = 0.0
        self.due[rows] = np.inf
        if self.stamp is not None:
            self.stamp[rows] = np.nan

    def _reserve(self, rows: int) -> None:
        """Makes room for so many. A table that becomes large gets all its rows at once, and takes memory as they are used."""
        have = len(self.due)
        if rows <= have:
            return
        size = max(rows, int(have * _GROWTH))
        size = max(rows, self.most) if size > _COPIED else min(size, max(rows, self.most))
        self.state = _grown(self.state, size)
        self.times = _grown(self.times, size)
        self.due = _grown(self.due, size)
        if self.silent is not None:
            self.silent = _grown(self.silent, size)
        if self.stamp is not None:
            self.stamp = _grown(self.stamp, size)


def _grown(array: NDArray[_T], size: int) -> NDArray[_T]:
    """Pages that nobody has written to cost nothing yet."""
    larger = np.zeros((size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
