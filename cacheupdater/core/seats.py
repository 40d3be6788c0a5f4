"""Which keys have a seat: for each such key of a partition, the unit in which it waits, runs or is held.

One dict per engine. `dedup` makes it; others read from it whether a key is still its unit's. Only this module changes it, so
the keys that a unit loses (`gone`) are counted where they are lost. It knows nothing of the automaton: `dedup` decides which
key sits where.
"""

from __future__ import annotations

from itertools import compress, repeat
from operator import is_
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater.core.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cacheupdater.core.unit import Demand


Seats: TypeAlias = dict[bytes, Unit]
"""A plain dict, so that a touch of a seated key costs one membership test and nothing else. For a subclass of `dict`, Python looks
up a method at each `key in seats`, and the test takes 1.4 times as long."""


def give(seats: Seats, unit: Unit) -> None:
    """All keys of this unit sit in it from now on."""
    # a loop: `update` with a second dict takes 1.3 times as long
    for key in unit.keys:
        seats[key] = unit


def join(seats: Seats, unit: Unit, parts: Sequence[tuple[Demand, list[bytes]]], own: list[bytes]) -> None:
    """The keys of all these parts sit in this unit from now on. The `own` keys of the unit, one of the parts, sit there already."""
    unit.demand, unit.parts, unit.gone = parts[0][0], parts, 0
    unit.keys = []
    for _, keys in parts:
        unit.keys += keys
        if keys is not own:
            for key in keys:
                seats[key] = unit


def vacate(seats: Seats, unit: Unit, key: bytes) -> None:
    """The key leaves its unit, and memory."""
    unit.gone += 1
    del seats[key]


def forget(seats: Seats, keys: Collection[bytes]) -> None:
    """These leave memory; their unit is over, or is narrowed to the others."""
    # a loop too: `map` over `__delitem__` calls a wrapper for each key, and was slower
    for key in keys:
        del seats[key]


def live_keys(seats: Seats, unit: Unit) -> list[bytes]:
    """The keys whose seat this unit still is."""
    return _in(seats, unit, unit.keys) if unit.gone else unit.keys


def live_parts(seats: Seats, unit: Unit) -> Sequence[tuple[Demand, list[bytes]]]:
    """The keys whose seat this running unit still is, by demand."""
    if not unit.gone:
        return unit.parts
    return [(demand, _in(seats, unit, keys)) for demand, keys in unit.parts]


def _in(seats: Seats, unit: Unit, keys: list[bytes]) -> list[bytes]:
    """Those whose seat this unit is. No loop in Python: of most units that end, some key has left."""
    return list(compress(keys, map(is_, map(seats.get, keys), repeat(unit))))


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
