"""How many units a source serves at a time, and how many of these slots one namespace may hold.

One `Slots` per source, shared by all engines. `payment` takes a slot at the start of a unit and gives it back at the end;
`schedule` asks before. A unit holds its slot until its write has ended, so a Redis that hangs stops the loads too.

The window of slots adapts. It begins at the source's `pool_size`, which is also the most. If a load takes several times as
long as its namespace's loads usually do, the source has too much to do, and the window shrinks; the least is one slot. If loads
take their usual time while all slots are busy, the window grows again. This is TCP's rule: up by addition, down by
multiplication. What is usual for a namespace follows quick loads at once and slow ones slowly, so a busy hour is not the usual.

A namespace whose last load was slow leaves a slot to the others, if there are others, and holds at most half of the window. So
four namespaces with slow statements cannot make the readers of a fifth wait for their timeouts, but for the first time.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

SLOW_S = 0.05
"""Seconds: a load that took no longer was quick. A batch by primary key takes a tenth of it."""

SLOWER_THAN_OTHERS = 4.0
"""A namespace is slow if its last load took so many times as long as quick loads of the source do now: on a busy machine all
loads take long, and nobody need leave anything to the others."""

KEPT_FREE = 1
"""Slots that slow namespaces leave to the others, of two slots or more."""

TIMES_AS_LONG = 3.0
"""A load that takes so many times its namespace's usual time, and is slow, shrinks the window. Twice is usual between a unit of
one key and a unit of two hundred."""

SHRINK = 0.8
"""The window after such a load. All loads that were under way together count once."""

RISING = 0.02
"""Weight of one longer load in what quick loads take: among ten quick loads, four that time out do not make themselves usual."""

QUICKER, SLOWER = 0.2, 0.005
"""Weights of one load in the usual time, where it was quicker or slower. After a lasting slowdown by ten, some seventy loads
make it the usual."""


class Slots:
    """The slots of one source."""

    __slots__ = (
        "_apart",
        "_held",
        "_known",
        "_last",
        "_quick",
        "_shrunk",
        "_usual",
        "_waiting",
        "had_apart",
        "most",
        "taken",
        "window",
    )

    def __init__(self, most: int) -> None:
        self.most = most
        self.window = float(most)
        self.taken = 0
        self._apart = 0  # slots that units of suspects hold
        self._known = 0  # those of them whose key is known to be slow
        self._waiting: dict[object, None] = {}  # engines whose suspects wait for a slot
        self.had_apart: object = None  # the engine that took the last such slot
        self._held: dict[Hashable, int] = {}  # by namespace
        self._last: dict[Hashable, float] = {}  # seconds of the last load
        self._usual: dict[Hashable, float] = {}
        self._quick = 0.0  # seconds that quick loads of the source take now
        self._shrunk = 0.0  # when the window shrank last

    @property
    def free(self) -> int:
        """Slots that somebody may take; below zero where the window has shrunk below what is taken."""
        return int(self.window) - self.taken

    def room(self, namespace: Hashable) -> int:
        """How many slots this namespace may take now."""
        others = len(self._held) - (namespace in self._held)
        if not others or self.is_quick(namespace):
            return self.free
        return self._half(self._held.get(namespace, 0))

    def apart(self, *, known: bool) -> int:
        """How many slots units of suspects may take. All of them together are as one slow namespace. Those that are `known` to be slow
        leave half of that to suspects that are not."""
        room = self._half(self._apart)
        return min(room, max(1, ceil(int(self.window) / 2) // 2) - self._known) if known else room

    def wait_apart(self, engine: object, *, waits: bool) -> None:
        """The engine has suspects that wait for a slot, or has none any more."""
        if waits:
            self._waiting[engine] = None
        else:
            self._waiting.pop(engine, None)

    def leaves_apart(self, engine: object) -> bool:
        """Whether the next such slot is another engine's: this one has had the last, and others wait."""
        return self.had_apart is engine and len(self._waiting) > (engine in self._waiting)

    def _half(self, held: int) -> int:
        window = int(self.window)
        kept = KEPT_FREE if window > KEPT_FREE else 0
        return min(self.free - kept, ceil(window / 2) - held)

    def is_quick(self, namespace: Hashable) -> bool:
        """Whether the last load of this namespace was quick. The first one is taken to be."""
        return self._last.get(namespace, 0.0) <= max(SLOW_S, SLOWER_THAN_OTHERS * self._quick)

    def usual(self, namespace: Hashable) -> float | None:
        """Seconds of this namespace's usual load; None before the first."""
        return self._usual.get(namespace)

    def take(self, namespace: Hashable, *, suspects: int = 0) -> None:
        """A unit of this namespace starts, maybe one of so many suspects."""
        self.taken += 1
        self._apart += suspects > 0
        self._known += suspects == 1
        self._held[namespace] = self._held.get(namespace, 0) + 1

    def give_back(self, namespace: Hashable, *, suspects: int = 0) -> None:
        """The unit has ended."""
        self.taken -= 1
        self._apart -= suspects > 0
        self._known -= suspects == 1
        self._held[namespace] -= 1

    def measured(self, namespace: Hashable, seconds: float, now: float) -> None:
        """A load of this namespace has ended, with an answer or without. Its unit still holds its slot."""
        usual = self._usual.setdefault(namespace, seconds)
        if seconds > max(SLOW_S, TIMES_AS_LONG * usual):
            if now - seconds >= self._shrunk:
                self.window, self._shrunk = max(1.0, self.window * SHRINK), now
        elif self.taken >= int(self.window):
            self.window = min(float(self.most), self.window + 1.0 / self.window)
        self._last[namespace] = seconds
        self._quick += (QUICKER if seconds < self._quick else RISING) * (seconds - self._quick)
        self._usual[namespace] = usual + (QUICKER if seconds < usual else SLOWER) * (seconds - usual)
