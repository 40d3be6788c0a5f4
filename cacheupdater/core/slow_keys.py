"""Which keys make their units slow. Such keys run apart from the others, in small units and few at a time.

A unit takes as long as its slowest key. So one slow key in a hundred makes nearly all units of its namespace slow, and the
others lose their rate. A unit that took far longer than others of its namespace did just then has a slow key, or several. Nobody
knows which, so all its keys are *suspects*: they run in pieces, apart. A piece that is quick clears its keys. A piece that is
slow is cut again, until the slow key is alone. `loads` says which units took far longer.

`dedup` asks which keys run apart, `outcomes` reports loads. One `SlowKeys` per engine.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from cacheupdater.core.loads import PIECES, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cacheupdater.core.unit import Unit

KNOWN_MAX = 20_000
"""Suspects of a partition: a hundred units. The oldest are forgotten, and found again if they are still slow."""


class SlowKeys:
    """The suspects of one partition."""

    __slots__ = ("_most",)

    def __init__(self) -> None:
        self._most: dict[bytes, int] = {}  # with how many others a key may run, itself included

    def __len__(self) -> int:
        return len(self._most)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._most)

    def __contains__(self, key: object) -> bool:
        return key in self._most

    def loaded(self, unit: Unit, verdict: Verdict) -> None:
        """The rows of a unit were loaded, and this is how long it took."""
        if verdict is Verdict.KEY:
            self.suspect(unit.keys, max(1, len(unit.keys) // PIECES))
        elif self._most and verdict is not Verdict.OPEN:
            self._clear(unit.keys)

    def suspect(self, keys: Collection[bytes], most: int) -> None:
        """One of these keys is slow: from now on they run apart, at most so many together."""
        self._clear(keys)
        self._most.update(dict.fromkeys(keys, most))
        for key in list(islice(self._most, max(0, len(self._most) - KNOWN_MAX))):
            del self._most[key]

    def _clear(self, keys: Collection[bytes]) -> None:
        if not self._most.keys().isdisjoint(keys):
            for key in keys:
                self._most.pop(key, None)

    def most(self, key: bytes) -> int:
        """With how many others this suspect may run, itself included."""
        return self._most[key]

    def split(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[list[bytes]]]:
        """The keys that run with others, and the pieces in which suspects run; a suspect that is named twice is in one of them."""
        alike: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
        others: list[bytes] = []
        for key in keys:
            most = self._most.get(key)
            if most is None:
                others.append(key)
            else:
                alike[most][key] = None
        return others, [piece for most, suspects in alike.items() for piece in _cut(list(suspects), most)]


def _cut(keys: list[bytes], most: int) -> Iterator[list[bytes]]:
    return (keys[at : at + most] for at in range(0, len(keys), most))
