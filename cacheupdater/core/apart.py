"""Which suspects of a partition may take a slot now, and when they leave one to those of other partitions.

Suspects are keys that may make their units slow (`slow_keys`). Units of theirs may hold part of a source's slots (`slots`). The
engines of all partitions take turns there: an engine that had the last such slot leaves the next one to the others, if suspects
wait there. It leaves the slot for a moment only, for these may wait for their quota. One per `schedule`. `now` is an argument.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.backlog import Backlog
    from cacheupdater.core.slots import Slots

_YIELD = 0.002
"""Seconds until a slot is taken that was left to other engines, and that none of them has taken."""


class Apart:
    """The suspects of one engine, beside those of others."""

    def __init__(self) -> None:
        self._yields_until = 0.0  # 0: it leaves no slot to others
        self._waiting: dict[Backlog, None] = {}  # whose suspects wait

    def ask(self, backlog: Backlog, now: float) -> None:
        """Notes in the backlog which of its suspects wait. While others are to be judged, those that are known to be slow wait sooner."""
        slots = backlog.namespace.source.slots
        if not (backlog.slow or backlog.known):
            backlog.slow_waits = backlog.known_waits = False
            if backlog in self._waiting:
                self._wait(backlog, slots)
            return
        slow, known = slots.apart(known=False), slots.apart(known=backlog.slow > 0)
        if self._yields(slots, now, has_room=max(slow, known) > 0):
            slow = known = 0
        backlog.slow_waits = backlog.slow > 0 and slow <= 0
        backlog.known_waits = backlog.known > 0 and known <= 0
        self._wait(backlog, slots)

    def _wait(self, backlog: Backlog, slots: Slots) -> None:
        """The engine waits as long as suspects of any of its backlogs do."""
        if backlog.withheld:
            self._waiting[backlog] = None
        else:
            self._waiting.pop(backlog, None)
        slots.wait_apart(self, waits=any(each.namespace.source.slots is slots for each in self._waiting))

    def took(self, backlog: Backlog) -> None:
        """A unit of suspects of this backlog has started."""
        backlog.namespace.source.slots.had_apart = self
        self._yields_until = 0.0

    def wake(self, now: float) -> float:
        """When to ask again, if nothing happens before."""
        return self._yields_until if self._yields_until > now else inf

    def _yields(self, slots: Slots, now: float, *, has_room: bool) -> bool:
        if not (has_room and slots.leaves_apart(self)):
            self._yields_until = 0.0
            return False
        if self._yields_until <= 0.0:
            self._yields_until = now + _YIELD
        return now < self._yields_until
