"""Whether the loads of a source fail now: all of them, or those of single namespaces.

One `Outage` per `Source`, shared by the engines of all partitions, which report how each load ended. One failed load is no
outage: its key may be the only one that cannot be loaded. So an outage begins with the second failure in a row, and the next
load that succeeds ends it. `prolonging` asks whether a namespace's values need more time. `quarantine` asks whether others of
the namespace were loaded while a key failed. Nothing else depends on an outage.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

IN_A_ROW = 2  # failures without a success between them


class Outage:
    """How the last loads of one source ended."""

    __slots__ = ("_alone", "_in_a_row", "_loaded", "begun")

    def __init__(self) -> None:
        self.begun = 0
        """How often something has begun to fail. A new number tells an engine to look again at what it knows."""
        self._in_a_row = 0
        self._alone: dict[Hashable, int] = {}  # failures in a row of namespaces whose own loads are at fault
        self._loaded: dict[
            Hashable, float
        ] = {}  # the latest beginning of a load that has succeeded, by namespace

    @property
    def lasts(self) -> bool:
        """Whether some namespace may be concerned: False while all is well, at no cost."""
        return self._in_a_row >= IN_A_ROW or bool(self._alone)

    def failed(self, namespace: Hashable, *, own: bool) -> None:
        """A load has failed. `own`: its statement, its loader or its keys are at fault, which says nothing about the source."""
        if own:
            in_a_row = self._alone[namespace] = self._alone.get(namespace, 0) + 1
        else:
            in_a_row = self._in_a_row = self._in_a_row + 1
        self.begun += in_a_row == IN_A_ROW

    def loaded(self, namespace: Hashable, began: float) -> None:
        """A load of this namespace has succeeded that began at this time."""
        self._in_a_row = 0
        self._loaded[namespace] = max(began, self._loaded.get(namespace, -inf))
        if self._alone:
            self._alone.pop(namespace, None)

    def has_loaded(self, namespace: Hashable, since: float) -> bool:
        """Whether a load of this namespace has succeeded that began later than that."""
        return self._loaded.get(namespace, -inf) > since

    def concerns(self, namespace: Hashable) -> bool:
        """Whether the loads of this namespace fail now."""
        return self._in_a_row >= IN_A_ROW or self._alone.get(namespace, 0) >= IN_A_ROW
