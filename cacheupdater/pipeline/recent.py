"""The refreshes that ended last, so that `cacheupdater explain` can say how the last refresh of a key ended.

Each process has one `Recent`, and every partition reports to it. A unit costs one entry, whatever its size, and its keys are
searched only when somebody asks. The number of units is bounded: a busy updater remembers the last minute, a quiet one the
last day.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.answers import Answer

RECENT_UNITS = 500  # each of at most 200 keys, most of which the engine holds anyway: some megabytes


class Refreshed(NamedTuple):
    """How one key's refresh ended."""

    at: float  # when it ended, by the loop's clock
    seconds: float  # from its token to the end of its write
    result: str
    why: str = ""


class _Ended(NamedTuple):
    at: float
    seconds: float
    keys: Sequence[bytes]
    answers: Sequence[Answer]  # parallel to the keys; empty where the unit failed as a whole
    error: str


class Recent:
    """The units that ended last, in the order of their ends."""

    def __init__(self) -> None:
        self._units: deque[_Ended] = deque(maxlen=RECENT_UNITS)

    def answered(self, keys: Sequence[bytes], answers: Sequence[Answer], at: float, seconds: float) -> None:
        """A unit has ended with an answer for every key."""
        self._units.append(_Ended(at, seconds, keys, answers, ""))

    def failed(self, keys: Sequence[bytes], error: str, at: float, seconds: float) -> None:
        """A unit has failed as a whole."""
        self._units.append(_Ended(at, seconds, keys, (), error))

    def last(self, key: bytes) -> Refreshed | None:
        """The key's last refresh, or None if it is not among the remembered units."""
        for unit in reversed(self._units):
            if key in unit.keys:
                return _refreshed(unit, unit.keys.index(key))
        return None


def _refreshed(unit: _Ended, place: int) -> Refreshed:
    if not unit.answers:
        return Refreshed(unit.at, unit.seconds, "error", unit.error)
    answer = unit.answers[place]
    return Refreshed(unit.at, unit.seconds, answer.result.value, answer.why)
