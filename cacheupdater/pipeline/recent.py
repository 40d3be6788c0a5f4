"""The refreshes that ended last, so that somebody who asks about a key can be told how its last one went.

One per process, told by every partition. A unit costs one entry, whatever its size, and nobody looks into an entry
before somebody asks. Bounded by number: of a busy updater this is the last minute, of a quiet one the last day.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.answers import Answer

RECENT_UNITS = 500  # of 200 keys at the most, whose objects the engine mostly holds anyway: some megabytes


class Refreshed(NamedTuple):
    """How one key's refresh ended."""

    at: float  # of the loop's clock
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
    """The last units, the youngest last."""

    def __init__(self) -> None:
        self._units: deque[_Ended] = deque(maxlen=RECENT_UNITS)

    def answered(self, keys: Sequence[bytes], answers: Sequence[Answer], at: float, seconds: float) -> None:
        """Every key has its answer."""
        self._units.append(_Ended(at, seconds, keys, answers, ""))

    def failed(self, keys: Sequence[bytes], error: str, at: float, seconds: float) -> None:
        """The whole unit came to nothing."""
        self._units.append(_Ended(at, seconds, keys, (), error))

    def last(self, key: bytes) -> Refreshed | None:
        """The key's last refresh, if it was among the last units."""
        for unit in reversed(self._units):
            if key in unit.keys:
                return _refreshed(unit, unit.keys.index(key))
        return None


def _refreshed(unit: _Ended, place: int) -> Refreshed:
    if not unit.answers:
        return Refreshed(unit.at, unit.seconds, "error", unit.error)
    answer = unit.answers[place]
    return Refreshed(unit.at, unit.seconds, answer.result.value, answer.why)
