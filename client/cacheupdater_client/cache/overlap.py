"""Whether two key patterns can take the same key. A cache asks for each pair of its declared values.

An updater's namespaces may share keys: the longest literal text wins. A declared value makes its keys itself, so a shared key
would have two loaders, and the reader of one value would get the other. Each pattern becomes a small automaton, and the two
walk in step. Plain functions, called when an application declares its values.
"""

from __future__ import annotations

from string import hexdigits
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cacheupdater_client.protocol.patterns import CaptureType, Pattern

_DIGITS = frozenset(b"0123456789")
_TEXT = frozenset(range(ord("!"), ord("~") + 1)) - {ord(":")}
_HEX = frozenset(hexdigits.lower().encode())
_DASHES = {8, 13, 18, 23}  # places in a uuid
_UUID_SIGNS = 36


def share_a_key(a: Pattern, b: Pattern) -> bool:
    """Whether some key is taken by both."""
    one, other = _Automaton(a), _Automaton(b)
    left, seen = [(0, 0)], {(0, 0)}
    while left:
        here, there = left.pop()
        if here in one.ends and there in other.ends:
            return True
        for signs, to in one.edges[here]:
            for more, too in other.edges[there]:
                if signs & more and (to, too) not in seen:
                    seen.add((to, too))
                    left.append((to, too))
    return False


class _Automaton:
    """Takes the keys of one pattern, sign by sign. State 0 is the beginning; in `ends` a key may end."""

    def __init__(self, pattern: Pattern) -> None:
        self.edges: list[list[tuple[frozenset[int], int]]] = [[]]
        self.ends = {0}
        self._add_literal(pattern.literals[0])
        for kind, behind in zip(pattern.types, pattern.literals[1:], strict=True):
            self._add_capture(kind)
            self._add_literal(behind)

    def _add_literal(self, text: bytes) -> None:
        for sign in text:
            self.ends = {self._state(frozenset({sign}), self.ends)}

    def _add_capture(self, kind: CaptureType) -> None:
        """As `patterns` spells them; that numbers have limits makes no difference here."""
        if kind is UUID:
            for place in range(_UUID_SIGNS):
                self.ends = {self._state(frozenset(b"-") if place in _DASHES else _HEX, self.ends)}
        elif kind is int:
            minus = self._state(frozenset(b"-"), self.ends)
            zero = self._state(frozenset(b"0"), self.ends)
            number = self._state(_DIGITS - frozenset(b"0"), {*self.ends, minus})
            self.edges[number].append((_DIGITS, number))
            self.ends = {zero, number}
        else:
            text = self._state(_TEXT, self.ends)
            self.edges[text].append((_TEXT, text))
            self.ends = {text}

    def _state(self, signs: frozenset[int], before: Iterable[int]) -> int:
        """A new state, which one of these signs leads to."""
        new = len(self.edges)
        self.edges.append([])
        for each in before:
            self.edges[each].append((signs, new))
        return new
