"""The mass-deletion brake: many rows that vanish at once are more likely a mistake than a fact.

A wrong schema, an empty replica or a truncated table answers "absent" for keys that readers still find. The brake sees
every unit before its write. While far more of the touched keys are absent than ever before, none of them is deleted; their
values stay until their ttl. Misses and changes do not count and are believed: a missed key has no value to lose, and a
change was announced. Touches of keys that have no value in Redis do not count either: a sender that invents keys must not
pull the brake. One per namespace and engine.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_ABSENT = 20  # keys in a window: below it a handful of deletes would trip the brake
SHARE = 0.5  # of the touched keys of a window
TIMES_USUAL = 5.0  # and so many times the share seen so far
WINDOW = 10.0  # seconds; two halves are kept, so a judgement looks back 10 to 20 s


@dataclass(slots=True)
class Brake:
    """The share of absent rows among touched keys, lately and usually."""

    usual: float = 0.0
    _asked: int = 0
    _absent: int = 0
    _last_asked: int = 0
    _last_absent: int = 0
    _turned: float = 0.0

    def trips(self, asked: int, absent: int, now: float) -> bool:
        """Whether absent rows must not be believed now. `asked` and `absent` are touched keys that were not counted before."""
        if now - self._turned >= WINDOW:
            self._turn(now)
        self._asked += asked
        self._absent += absent
        window_asked = self._asked + self._last_asked
        window_absent = self._absent + self._last_absent
        share = max(SHARE, min(0.9, TIMES_USUAL * self.usual))
        return window_absent >= LEAST_ABSENT and window_absent > window_asked * share

    def _turn(self, now: float) -> None:
        stale = now - self._turned >= 2 * WINDOW
        if self._asked and self._absent <= self._asked * SHARE:  # what trips the brake never becomes usual
            self.usual += 0.2 * (self._absent / self._asked - self.usual)
        self._last_asked, self._last_absent = (0, 0) if stale else (self._asked, self._absent)
        self._asked = self._absent = 0
        self._turned = now
