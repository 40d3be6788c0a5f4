"""Whose fault it is when a unit is not answered in time: the other units of its source show it.

One per `Source`. The engines of all partitions report when a unit begins and how it ends. If a unit times out while others
are answered, one of its own rows is slow. If others ran and none was answered, the source is slow, and smaller units would
only give it more statements. A unit that ran alone has no witness, so it is taken to be at fault itself.
Nothing is remembered but the latest answer, the latest timeout and what runs. `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import Protocol


class Witness(Protocol):
    """A unit, as far as this module knows it."""

    began: float


class Witnesses:
    """The witnesses of one source."""

    __slots__ = ("_answered", "_running", "_silent")

    def __init__(self) -> None:
        self._running: dict[Witness, float] = {}  # since when, in the order of their beginnings
        self._answered = -inf
        self._silent = -inf

    def began(self, unit: Witness, now: float) -> None:
        """The unit runs."""
        self._running[unit] = now

    def answered(self, unit: Witness, now: float) -> None:
        """The source has answered the unit, be it with an error."""
        self._answered = now
        self.gone(unit)

    def silent(self, now: float) -> None:
        """A unit was not answered in time. It may still run."""
        self._silent = now

    def gone(self, unit: Witness) -> None:
        """The unit does not run any more."""
        self._running.pop(unit, None)

    def answered_since(self, then: float) -> bool:
        """Whether the source has answered any unit since then."""
        return self._answered > then

    def blame(self, unit: Witness, now: float) -> bool:
        """Whether a unit that was not answered in time is itself at fault."""
        if self.answered_since(unit.began):
            return True
        if self._silent > unit.began:
            return False
        halfway = (unit.began + now) / 2  # a unit that has begun later may still be answered in time
        oldest = next((since for other, since in self._running.items() if other is not unit), inf)
        return oldest > halfway
