"""Which keys make their units slow. Such keys run apart from the others, in small units and few at a time.

A unit takes as long as its slowest key. So one slow key in a hundred makes nearly all units of its namespace slow, and the
others lose their rate. A unit that took far longer than others of its namespace did just then has a slow key, or several. Nobody
knows which, so all its keys are *suspects*: they run in pieces, apart. A piece that is quick clears its keys. A piece that is
slow is cut again, until the slow key is alone. `loads` says which units took far longer.

If the machine may have stood still instead, the keys are *noticed* only. Keys that are noticed twice in a row are suspects: a
pause seldom meets the same keys again. So a busy machine makes few suspects, and cuts few pieces that have no slow key.

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
"""Suspects of a partition, and noticed keys: a hundred units of each. The oldest are forgotten, and found again if they are still slow."""


class SlowKeys(dict[bytes, int]):
    """The suspects of one partition, each with how many others it may run, itself included. A dict, since every new head asks
    whether there are any."""

    __slots__ = ("_noticed",)

    def __init__(self) -> None:
        super().__init__()
        self._noticed: dict[bytes, None] = {}

    def loaded(self, unit: Unit, verdict: Verdict) -> None:
        """The rows of a unit were loaded, and this is how long it took."""
        if verdict is Verdict.KEY:
            self.suspect(unit.keys, _smaller(unit.keys))
        elif verdict is Verdict.EITHER:
            self._notice(unit.keys)
        elif verdict is not Verdict.OPEN:
            self._acquit(unit.keys)

    def suspect(self, keys: Collection[bytes], most: int) -> None:
        """One of these keys is slow: from now on they run apart, at most so many together."""
        self._acquit(keys)
        self.update(dict.fromkeys(keys, most))
        _forget_the_oldest(self)

    def _notice(self, keys: Collection[bytes]) -> None:
        """One of these keys may be slow. If some are noticed for the second time, it is one of them."""
        again = [key for key in keys if key in self._noticed]
        if again:
            self.suspect(again, _smaller(again))
            return
        self._noticed.update(dict.fromkeys(keys))
        _forget_the_oldest(self._noticed)

    def _acquit(self, keys: Collection[bytes]) -> None:
        for table in (self, self._noticed):
            if table and not table.keys().isdisjoint(keys):
                for key in keys:
                    table.pop(key, None)

    def split(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[list[bytes]]]:
        """The keys that run with others, and the pieces in which suspects run; a suspect that is named twice is in one of them."""
        alike: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
        others: list[bytes] = []
        for key in keys:
            most = self.get(key)
            if most is None:
                others.append(key)
            else:
                alike[most][key] = None
        return others, [piece for most, suspects in alike.items() for piece in _cut(list(suspects), most)]


def _smaller(keys: Collection[bytes]) -> int:
    """How many of these keys may run together next."""
    return max(1, len(keys) // PIECES)


def _forget_the_oldest(table: dict[bytes, int] | dict[bytes, None]) -> None:
    for key in list(islice(table, max(0, len(table) - KNOWN_MAX))):
        del table[key]


def _cut(keys: list[bytes], most: int) -> Iterator[list[bytes]]:
    return (keys[at : at + most] for at in range(0, len(keys), most))
