"""Which of many patterns with one literal prefix a key may fit, without trying each of them.

`keyspace` makes one `Siblings` per prefix. It is a tree of the literals between the captures. A capture that is not the last
one ends where its type says: a text at the colon, a number at its last digit, a uuid after 36 bytes. What follows is looked
up among all literals that may stand there. The last literal is looked up from the key's end. So a key costs as much among
thousands of patterns as among three: a look-up per capture and per length of literal.
Few patterns are left, mostly one or none, and these are parsed. So the tree need not be exact, but it must miss no pattern.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater_client.protocol.patterns import CaptureType, Pattern

T = TypeVar("T")

_NUMBER = re.compile(rb"-?[0-9]+")
_UUID_BYTES = 36


class Siblings(Generic[T]):
    """The patterns of one literal prefix, by precedence: the first that takes a key has it."""

    first: T
    """What the one with the highest precedence stands for."""

    def __init__(self, pairs: Sequence[tuple[Pattern, T]]) -> None:
        self._pairs = pairs
        self._root = _Tree()
        for rank, (pattern, _) in enumerate(pairs):
            self._root.add(pattern, rank)
        if pairs:
            self._at, self.first = len(pairs[0][0].prefix), pairs[0][1]

    def __len__(self) -> int:
        return len(self._pairs)

    def find(self, key: bytes) -> T | None:
        """What this key belongs to."""
        ranks: list[int] = []
        self._root.find(key, self._at, ranks)
        ranks.sort()
        for rank in ranks:
            pattern, value = self._pairs[rank]
            if pattern.takes(key):
                return value
        return None


class _Tree:
    """What may follow a place in a key: a capture of some type, then one of some literals."""

    __slots__ = ("_ends", "_goes_on", "_last", "_lengths")

    def __init__(self) -> None:
        self._goes_on: dict[CaptureType, dict[bytes, _Tree]] = {}
        self._lengths: dict[CaptureType, list[int]] = {}  # of those literals
        self._last: dict[bytes, list[int]] = {}  # ranks, by what stands behind the last capture
        self._ends: list[int] = []  # lengths of those literals, each once

    def add(self, pattern: Pattern, rank: int) -> None:
        """A branch for this pattern."""
        tree = self
        for kind, literal in zip(pattern.types[:-1], pattern.literals[1:-1], strict=True):
            tree = tree.branch(kind, literal)
        tree.end(pattern.literals[-1], rank)

    def find(self, key: bytes, at: int, ranks: list[int]) -> None:
        """Adds the ranks of the patterns whose literals stand in the key as they should, from `at` on."""
        for length in self._ends:
            fitting = self._last.get(key[len(key) - length :])
            if fitting is not None:
                ranks += fitting
        for kind, branches in self._goes_on.items():
            end = _end_of(kind, key, at)
            if end > at:
                for length in self._lengths[kind]:
                    branch = branches.get(key[end : end + length])
                    if branch is not None:
                        branch.find(key, end + length, ranks)

    def branch(self, kind: CaptureType, literal: bytes) -> _Tree:
        """The tree behind this capture and this literal."""
        branches = self._goes_on.setdefault(kind, {})
        if literal not in branches:
            branches[literal] = _Tree()
            _note(self._lengths.setdefault(kind, []), len(literal))
        return branches[literal]

    def end(self, literal: bytes, rank: int) -> None:
        """A pattern ends here, with one more capture and this literal."""
        self._last.setdefault(literal, []).append(rank)
        _note(self._ends, len(literal))


def _note(lengths: list[int], length: int) -> None:
    if length not in lengths:
        lengths.append(length)


def _end_of(kind: CaptureType, key: bytes, at: int) -> int:
    """Where a capture that begins at `at` ends, if it is not the last; less than `at` if none can begin there."""
    if kind is str:
        return key.find(b":", at)  # a colon must follow a text
    if kind is UUID:
        return at + _UUID_BYTES
    number = _NUMBER.match(key, at)  # no digit may follow it
    return number.end() if number is not None else -1
