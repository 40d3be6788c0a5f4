"""Which row a key has: a hash table in two arrays, so that a batch of ten thousand keys is looked up side by side.

A dict answers one key at a time and waits for main memory three times over: at a million keys it took 0.8 us a key, half of
the policy's time. These arrays take 0.3 us in packs of 10,000 and 0.4 us in packs of 1000 (no gain below 100), and 27 bytes
a key less. One per `table`, for its life.

A key is known by its 64-bit hash, which is Python's own, seeded per process. In one of thirty million processes two of a
million keys have the same hash; they would be counted as one.

Open addressing in segments of a fixed size: a key lies at its own place or, if that is taken, at a place behind it. Low bits
of its hash say which segment is its own (extendible hashing). A segment that is full becomes two, and no other segment moves.
A single table would be made anew as a whole: that stopped a turn for 70 ms at 600,000 keys. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Tags: TypeAlias = NDArray[np.int64]
"""What keys are known by: odd numbers."""

_BITS = 11
_SIZE = 1 << _BITS  # places of a segment: to make two of it takes 0.2 ms
_WITHIN = _SIZE - 1
_ROOM = int(0.6 * _SIZE)  # tags of a segment at the most; beyond, keys would lie far behind their own places
_LESS = 1 / 3  # of that, by which segments have less at most: with equal rooms all would be full at once
_GOLDEN = 0.6180339887498949  # its multiples lie evenly between two whole numbers
_WORTH = 0.75  # of its room: a full segment with more keys becomes two, one with fewer loses its GONE tags
_COPIED = 64  # segments of the largest table that is copied to be twice as large: 1.5 MB
_FREE = -1  # row of a place that is free
_NEVER = 0  # tag of a place that was never taken: no key need be looked for behind it
_GONE = 2  # tag of a place whose key has left; keys have odd ones
_SPAN = np.arange(8)  # places that are looked at together: a cache line of tags


def tags_of(keys: Sequence[bytes]) -> Tags:
    """One per key."""
    tags = np.fromiter(map(hash, keys), np.int64, len(keys))
    tags |= 1
    return tags


class Slots:
    """Rows by tag. Each row is in here once."""

    def __init__(self, most: int) -> None:
        """For some `most` keys: a hint, and no bound."""
        self._most = round(most / (_WORTH * _ROOM * (1.0 - _LESS) / 2)) + 1  # segments
        self._tags: Tags = np.zeros(_SIZE, np.int64)
        self._rows: NDArray[np.int32] = np.full(_SIZE, _FREE, np.int32)
        self._used = np.zeros(1, np.int64)  # by segment: places that have a tag
        self._rooms = _rooms(1)
        self._depths = [0]  # by segment: how many bits its keys have in common
        self._segments: NDArray[np.int64] = np.zeros(
            1, np.int64
        )  # by the last of a tag's bits above its place

    def find(self, tags: Tags) -> NDArray[np.int32]:
        """The row of each, -1 for a stranger."""
        rows = np.full(len(tags), _FREE, np.int32)
        left, begins, places = np.arange(len(tags)), self._of(tags) << _BITS, tags >> 1
        while len(left):
            span = begins[:, None] + ((places[:, None] + _SPAN) & _WITHIN)
            here = self._tags.take(span)
            who, where = np.nonzero(here == tags[:, None])
            rows[left[who]] = self._rows.take(span[who, where])
            missed = np.flatnonzero(rows.take(left) == _FREE)
            on = missed[(here[missed] != _NEVER).all(axis=1)]
            left, tags, begins, places = left[on], tags[on], begins[on], places[on] + len(_SPAN)
        return rows

    def add(self, tags: Tags, rows: NDArray[np.int32]) -> None:
        """These rows are in use from now on, for keys that were strangers."""
        while True:
            coming = np.bincount(self._of(tags), minlength=len(self._used))
            full = np.flatnonzero(self._used + coming > self._rooms).tolist()
            if not full:
                break
            for segment in full:
                self._make_room(segment, int(coming[segment]))
        self._put(tags, rows)

    def remove(self, tags: Tags, rows: NDArray[np.int32]) -> None:
        """The keys of these rows are strangers again."""
        places = self._places(tags)
        while len(tags):
            has = self._rows.take(places) == rows
            mine = places[has]
            self._rows[mine], self._tags[mine] = _FREE, _GONE
            last = mine[self._tags.take(_next(mine)) == _NEVER]  # no key is looked for behind these
            self._tags[last] = _NEVER
            self._count(last, -1)
            on = np.flatnonzero(~has & (self._tags.take(places) != _NEVER))
            tags, rows, places = tags[on], rows[on], _next(places[on])

    def _of(self, tags: Tags) -> NDArray[np.int64]:
        """The segment of each."""
        return self._segments.take((tags >> (_BITS + 1)) & (len(self._segments) - 1))

    def _places(self, tags: Tags) -> NDArray[np.int64]:
        return (self._of(tags) << _BITS) + ((tags >> 1) & _WITHIN)

    def _put(self, tags: Tags, rows: NDArray[np.int32]) -> None:
        """There is room for all of them."""
        places = self._places(tags)
        while len(tags):
            free = np.flatnonzero(self._rows.take(places) == _FREE)
            self._rows[places[free]] = rows[free]  # of several for one place, one has it now
            has = self._rows.take(places) == rows
            won, lost = np.flatnonzero(has), np.flatnonzero(~has)
            mine = places[won]
            self._count(mine[self._tags.take(mine) == _NEVER], 1)
            self._tags[mine] = tags[won]
            tags, rows, places = tags[lost], rows[lost], _next(places[lost])

    def _count(self, places: NDArray[np.int64], tags: int) -> None:
        """Each of these places has a tag from now on, or none."""
        if len(places):
            by_segment = np.bincount(places >> _BITS)
            self._used[: len(by_segment)] += tags * by_segment

    def _make_room(self, segment: int, coming: int) -> None:
        """Frees the places of keys that have left. If that is not enough, the segment becomes two."""
        part = slice(segment << _BITS, (segment + 1) << _BITS)
        held = np.flatnonzero(self._rows[part] != _FREE)
        tags, rows = self._tags[part][held], self._rows[part][held]
        self._tags[part], self._rows[part], self._used[segment] = _NEVER, _FREE, 0
        if len(held) + coming > _WORTH * self._rooms[segment]:
            self._split(segment)
        self._put(tags, rows)

    def _split(self, segment: int) -> None:
        """From now on half of the hashes of this segment belong to a new one."""
        new, depth = len(self._depths), self._depths[segment]
        if new == len(self._used):
            self._reserve(max(self._most, 2 * new) if new >= _COPIED else 2 * new)
        self._rows[new << _BITS : (new + 1) << _BITS] = _FREE
        self._depths[segment] = depth + 1
        self._depths.append(depth + 1)
        if len(self._segments) == 1 << depth:
            self._segments = np.concatenate((self._segments, self._segments))
        theirs = np.flatnonzero(self._segments == segment)
        self._segments[theirs[theirs >> depth & 1 == 1]] = new

    def _reserve(self, segments: int) -> None:
        """Makes room for so many. Pages that nobody has written to cost nothing yet."""
        used, tags, rows = self._used, self._tags, self._rows
        self._rooms = _rooms(segments)
        self._used = np.zeros(segments, np.int64)
        self._tags = np.zeros(segments << _BITS, np.int64)
        self._rows = np.zeros(segments << _BITS, np.int32)
        self._used[: len(used)], self._tags[: len(tags)], self._rows[: len(rows)] = used, tags, rows


def _rooms(segments: int) -> NDArray[np.float64]:
    """How many tags each segment may have."""
    return np.asarray(_ROOM * (1.0 - _LESS * (np.arange(segments) * _GOLDEN % 1.0)), np.float64)


def _next(places: NDArray[np.int64]) -> NDArray[np.int64]:
    return (places & ~_WITHIN) + ((places + 1) & _WITHIN)
