"""What may be spent: so much a second, and a burst that a quiet moment may save up.

One per source and quota, shared by all engines of the process (they run in one event loop, so there is no lock). Pure: `now`
is an argument. The bucket is our own because it must answer "when could n rows be paid?", and must start empty, so that a
restart loop cannot spend bursts.

The promise is about what the database sees. A statement is paid when its unit starts, and may leave much later: Redis is
slow, or a connection must be made first. So the payment is only set apart at first. It stays in the bucket until the
statement leaves (`payment`). A bucket that is full of such payments fills up no further.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.core.beats import Beats

_ROUNDING = 1e-6  # of a row: sums of what comes and goes


class Bucket:
    """What may be spent: in any window of t seconds at most rate * t + burst."""

    __slots__ = ("_apart", "_at", "_beat", "_beats", "_level", "burst", "rate", "shut_out", "spent", "until")

    def __init__(self, rate: float, burst: float, *, now: float) -> None:
        self.rate = rate
        self.burst = max(burst, 1.0)  # of a whole budget: below one row nothing could ever be paid
        self.spent = 0.0
        """All that was ever taken."""
        self.until = inf
        """When the bucket closes: from then on it is empty, until it gets more time. A fleet's buckets have such an end. An
        owner that slept past it finds nothing, for the bucket itself looks at the clock."""
        self.shut_out: dict[object, Callable[[], object]] = {}
        """Who waits until the bucket gets more time, and how each is told."""
        self._level = 0.0
        self._apart = 0.0  # payments whose statements have not left: they fill the bucket until then
        self._at = now
        self._beats: Beats | None = None  # if its owner's part of the burst is below one row
        self._beat: int | None = None  # the last one that was seen

    def open(self, until: float) -> None:
        """The bucket gets more time. Whoever waits for that is told."""
        self.until = until
        for tell in self.shut_out.values():
            tell()
        self.shut_out.clear()

    def level(self, now: float) -> float:
        """What can be spent now."""
        if self._beats is not None:
            return self._level_in_beat(self._beats, now)
        if now > self._at:  # a clock that steps back adds nothing
            self._level = min(self.burst - self._apart, self._level + (now - self._at) * self.rate)
            self._at = now
        if now >= self.until:
            self._level = min(self._level, -self._apart)
        return self._level

    def _level_in_beat(self, beats: Beats, now: float) -> float:
        """What is not spent in a beat is lost; a debt is paid by the beats that follow."""
        beat = beats.at(now)
        if beat is None or beat != self._beat:
            self._level = min(0.0, self._level)
        if beat is not None and beats.follows(beat, self._beat):
            self._level = min(0.0, self._level + beats.missed(beat, self._beat)) + beats.amount
            self._beat = beat
        self._at = max(self._at, now)
        if now >= self.until:
            self._level = min(self._level, 0.0)
        return self._level

    def soon(self, now: float) -> float:
        """What may be asked for: what can be spent now, or in the next beat."""
        level = self.level(now)
        return level if self._beats is None else max(level, min(level, 0.0) + self.burst)

    def rows(self, now: float, cost: float = 1.0) -> int:
        """Whole rows that can be paid now. A full bucket pays for a row that costs more than it holds, in advance."""
        level = self.level(now)
        rows = int(level / cost + 1e-9)
        return 1 if not rows and level >= self.burst else rows

    def take(self, amount: float) -> None:
        """Spend this at once."""
        self._level -= amount
        self.spent += amount

    def set_apart(self, amount: float) -> None:
        """Pay for a statement that leaves later. The caller has asked `rows` first. `let_go` or `put_back` must follow."""
        self._level -= amount
        self._apart += amount
        self.spent += amount

    def covers(self, amount: float, since: float, now: float) -> bool:
        """Whether what was set apart at `since` is still there: the bucket may have been closed or made smaller meanwhile."""
        there = self.level(now) + self._apart
        if self._beats is not None:
            return now < self.until and self._same_beat(self._beats, since, now)
        return now < self.until and there >= amount - _ROUNDING

    def let_go(self, amount: float, now: float) -> None:
        """The statement leaves now. Only from now on the bucket refills what was set apart for it."""
        self.level(now)
        self._apart -= amount

    def put_back(self, amount: float, since: float, now: float) -> None:
        """The statement for which this was set apart at `since` never left."""
        self.level(now)  # it has filled the bucket so far
        self._apart -= amount
        self.give_back(amount, since, now)

    def give_back(self, amount: float, since: float, now: float) -> None:
        """What was spent at `since` has cost nothing. A beat that is over does not come again, but a debt shrinks."""
        self.spent -= amount
        level = self.level(now)
        if self._beats is None or self._same_beat(self._beats, since, now):
            self._level = min(self.burst - (0.0 if self._beats else self._apart), level + amount)
        else:
            self._level = max(level, min(0.0, level + amount))

    def _same_beat(self, beats: Beats, since: float, now: float) -> bool:
        beat = beats.at(now)
        return beat is not None and beats.began(beat, since)

    def when(self, amount: float) -> float:
        """When this amount (at most `burst`) can be paid, if nobody else takes any; inf: not before the bucket closes."""
        short = min(amount, self.burst) - self._level
        if self._beats is not None and short > 0.0:
            at = self._beats.after(self._at)
        else:
            at = self._at + max(0.0, short) / self.rate
        return at if at < self.until else inf

    def share(self, seconds: float, cost: float = 1.0) -> int:
        """The rows that the rate brings in so many seconds: at least one, at most the burst."""
        return max(1, int(min(self.burst, self.rate * seconds) / cost))

    def change(self, rate: float, burst: float, *, now: float) -> None:
        """Another rate from now on. What was saved up beyond the new burst is gone."""
        self.level(now)
        if self._beats is not None:
            self._beats, self._level = None, min(self._level, 0.0) - self._apart
        self.rate, self.burst = rate, max(burst, 1.0)
        self._level = min(self._level, self.burst - self._apart)

    def follow(self, beats: Beats, rate: float, *, now: float) -> None:
        """From now on there are beats instead of a burst. `rate` is what the beats bring per second."""
        level = self.level(now)
        if self._beats is None:
            level += self._apart
        if self._beats is None or self._beats.grid != beats.grid:
            self._level, self._beat = min(0.0, level), None
        self._beats, self.rate, self.burst = beats, rate, beats.amount
