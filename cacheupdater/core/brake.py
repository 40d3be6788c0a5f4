"""The mass-deletion brake: many rows that vanish at once are more likely a mistake than a fact.

A wrong schema, an empty replica or a truncated table answers "absent" for keys that readers still find. The brake sees
every unit before its write. While far more of the keys that were touched lately are absent than ever before, none of them is
deleted; their values stay until their ttl. Misses and changes do not count and are believed: a missed key has no value to
lose, and a change was announced. Touches of keys that have no value in Redis do not count either: a sender that invents keys
must not pull the brake. One per namespace and engine.

A key counts once, with its latest load. If each load counted, and keys were loaded ten times in a window, all rows that
vanish would be deleted before they were half of the loads.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_ABSENT = 20  # keys: below it a handful of deletes would trip the brake
SHARE = 0.5  # of the keys that were touched lately
TIMES_USUAL = 5.0  # and so many times the share seen so far
WINDOW = 10.0  # seconds: what was touched earlier does not count
LATEST = 1_000
"""Loads that are looked back at: all of a quiet namespace's window. In each partition, a busy namespace loses a share of them and
a unit at most: half, or up to nine tenths where many rows are usually absent."""


@dataclass(slots=True)
class Brake:
    """The share of absent rows among touched keys, lately and usually."""

    usual: float = 0.0
    # units: when, their touched keys, and those without a row
    _latest: deque[tuple[float, Sequence[bytes], Sequence[bytes]]] = field(default_factory=deque)
    _asked: int = 0  # keys of the latest units, however often one was loaded
    _absent: int = 0
    _since: float = 0.0  # when the last look at what is usual was taken, and what was loaded since then
    _asked_since: int = 0
    _absent_since: int = 0

    def trips(self, touched: Sequence[bytes], absent: Sequence[bytes], now: float) -> bool:
        """Whether absent rows must not be believed now. These touched keys were loaded, and some had no row."""
        if now - self._since >= WINDOW:
            self._learn(now)
        if touched:
            self._latest.append((now, touched, absent))
            self._count(len(touched), len(absent))
            self._asked_since += len(touched)
            self._absent_since += len(absent)
        self.forget(now)
        if self._absent < LEAST_ABSENT:  # in almost every unit
            return False
        vanished: dict[bytes, bool] = {}
        for _, keys, without_row in self._latest:
            vanished.update(dict.fromkeys(keys, False))
            vanished.update(dict.fromkeys(without_row, True))
        keys_absent = sum(vanished.values())
        share = max(SHARE, min(0.9, TIMES_USUAL * self.usual))
        return keys_absent >= LEAST_ABSENT and keys_absent > len(vanished) * share

    def _count(self, asked: int, absent: int) -> None:
        self._asked += asked
        self._absent += absent

    def forget(self, now: float) -> None:
        """What was touched too long ago leaves memory."""
        latest = self._latest
        while latest and (now - latest[0][0] >= WINDOW or self._asked - len(latest[0][1]) >= LATEST):
            _, touched, absent = latest.popleft()
            self._count(-len(touched), -len(absent))

    def _learn(self, now: float) -> None:
        asked, absent = self._asked_since, self._absent_since
        if asked and absent <= asked * SHARE:  # what trips the brake never becomes usual
            self.usual += 0.2 * (absent / asked - self.usual)
        self._asked_since = self._absent_since = 0
        self._since = now
