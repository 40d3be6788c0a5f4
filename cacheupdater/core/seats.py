"""Which keys have a seat: for each such key of a partition, the unit in which it waits, runs or is held.

One dict per engine. `dedup` makes it; others read from it whether a key is still its unit's. Only this module changes it, so
the keys that a unit loses (`gone`) are counted where they are lost. It knows nothing of the automaton: `dedup` decides which
key sits where.
"""

from __future__ import annotations

from itertools import compress, repeat
from operator import is_
from typing import TYPE_CHECKING

from cacheupdater.core.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cacheupdater.core.unit import Demand


class Seats(dict[bytes, Unit]):
    """A dict, so that a touch of a seated key costs one membership test and nothing else."""

    __slots__ = ()

    def give(self, unit: Unit) -> None:
        """All keys of this unit sit in it from now on."""
        self.update(dict.fromkeys(unit.keys, unit))

    def vacate(self, unit: Unit, key: bytes) -> None:
        """The key leaves its unit, and memory."""
        unit.gone += 1
        del self[key]

    def forget(self, keys: Collection[bytes]) -> None:
        """These leave memory; their unit is over, or is narrowed to the others."""
        # `map` over `__delitem__` goes through a wrapper: an engine's short steps cost 7 % more with it
        for key in keys:
            del self[key]

    def live(self, unit: Unit) -> list[bytes]:
        """The keys whose seat this unit still is."""
        return self._in(unit, unit.keys) if unit.gone else unit.keys

    def live_parts(self, unit: Unit) -> Iterator[tuple[Demand, list[bytes]]]:
        """The keys whose seat this running unit still is, by demand."""
        for demand, keys in unit.parts:
            yield demand, self._in(unit, keys) if unit.gone else keys

    def _in(self, unit: Unit, keys: list[bytes]) -> list[bytes]:
        """Those whose seat this unit is. No loop in Python: of most units that end, some key has left."""
        return list(compress(keys, map(is_, map(self.get, keys), repeat(unit))))


def moved(unit: Unit, keys: int = 1) -> None:
    """So many keys of this unit are given another seat."""
    unit.gone += keys


def narrow(unit: Unit, keys: list[bytes]) -> None:
    """Only these keys are left of this unit, and each sits in it."""
    unit.keys, unit.gone = keys, 0


def narrow_parts(unit: Unit, parts: Sequence[tuple[Demand, list[bytes]]]) -> None:
    """The same for a unit that is about to run."""
    unit.parts = parts
    narrow(unit, [key for _, keys in parts for key in keys])
