"""Which hints of a schedule were served, and by when. The checkers of L1 and K1 use it.

`invariants` makes one for each schedule. A touch, a miss and a change have different promises (design, section 6).
"""

from __future__ import annotations

from collections import defaultdict
from math import inf

from cacheupdater.core.answers import FINISHING
from cacheupdater_client.protocol.wire import MISS
from simulated.history import UNREAD

BLINK = 1e-6  # seconds: times are floats, and Redis counts microseconds


class Served:
    """The served hints of one schedule."""

    def __init__(self, seen, plan):
        self._gap = plan.limits.gap
        self._hold = plan.hold
        self._missing_ttl = plan.missing_ttl
        self._flights = defaultdict(list)
        self._drops = defaultdict(list)
        self._declined = defaultdict(list)
        self._removals = defaultdict(list)
        self._intakes = defaultdict(list)  # of a pack
        self._repeats = defaultdict(list)  # of packs that were put back with this key
        self._expired = seen.expired
        self._voids = defaultdict(list)  # touches and changes of a key, by owner: they end an absent mark
        for flight in seen.flights:
            for key in flight.landed:
                self._flights[key].append(flight)
        for drop in seen.drops:
            if drop.reason == UNREAD:
                continue  # touches and misses of the key are owed all the same
            self._drops[drop.key].append(drop)
        for at, key in seen.declined:
            self._declined[key].append(at)
        for removal in seen.removals:
            for key in removal.keys:
                self._removals[key].append(removal)
        for intake in seen.intakes:
            self._intakes[intake.hint].append(intake)
            for key in intake.hint.keys if intake.hint in seen.put_back else ():
                self._repeats[key].append(intake)
            if intake.hint.kind != MISS:
                for key in intake.hint.keys:
                    self._voids[intake.owner, key].append(intake.at)

    def unserved(self, hint, by=inf):
        """The keys of this pack that were not served by then. A pack that vanished from the queue counts as served."""
        if any(expired.covers(hint, by) for expired in self._expired):
            return []
        serves = (self._touch, self._miss, self._change)[hint.kind]
        return [key for key in hint.keys if not serves(hint, key, by)]

    def _change(self, hint, key, by):
        return self.is_changed(key, hint.at, by)

    def is_changed(self, key, since, by):
        """A finished refresh whose database read began at or after this moment, or a removal of the value since then."""
        return any(f.read_at >= since and f.is_finished(key, by) for f in self._flights[key]) or any(
            r.at >= since and r.is_acked(by) for r in self._removals[key]
        )

    def _miss(self, hint, key, by):
        """A refresh that finished after t - gap, a live absent mark, or a counted drop."""
        after = hint.at - self._gap - BLINK
        return (
            any(f.ended > after and f.is_finished(key, by) for f in self._flights[key])
            or any(
                self._is_marked(i, key)
                for i in (*self._intakes[hint], *self._repeats[key])
                if hint.at <= i.at <= by
            )
            or self._is_dropped(hint, key, by)
        )

    def _touch(self, hint, key, by):
        """A finished refresh that began at or after t - hold, a counted drop, or the policy's counted decision."""
        after = hint.at - self._hold(key) - BLINK
        return (
            any(f.began >= after and f.is_finished(key, by) for f in self._flights[key])
            or self._is_dropped(hint, key, by)
            or any(hint.at <= at <= by for at in self._declined[key])
        )

    def _is_dropped(self, hint, key, by):
        return any(hint.at <= drop.at <= by for drop in self._drops[key])

    def _is_marked(self, intake, key):
        """Whether the key was marked absent.

        An accepted absent write of the same owner sets the mark. It ends with its ttl, at any touch, at any change.
        """
        for flight in self._flights[key]:
            found_none = key in flight.found and flight.found[key] is None
            if flight.owner != intake.owner or not found_none or flight.answers.get(key) not in FINISHING:
                continue
            if not flight.ended <= intake.at <= flight.ended + self._missing_ttl + BLINK:
                continue
            if not any(flight.ended < at < intake.at for at in self._voids[intake.owner, key]):
                return True
        return False
