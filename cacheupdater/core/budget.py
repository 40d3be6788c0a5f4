"""What a database can afford: rows (or milliseconds of its time) per second, and units at a time.

One `Source` per configured source, one `Bucket` per source and quota, one `Cost` per namespace, shared by all engines
of this process (they run in one event loop, so there is no lock). Pure: `now` is an argument. Our own bucket of forty
lines because it must answer "when could n rows be paid?" and starts empty, so that a restart loop cannot spend bursts.
"""

from __future__ import annotations

from math import inf

from cacheupdater.core.turns import Turns
from cacheupdater.core.witnesses import Witnesses

_LEARNED = 0.1  # weight of one load in the mean cost of a row: some ten units
_DEAREST = (
    60_000.0  # milliseconds; a row that seems to cost more was a pause of ours, not work of the database
)


class Bucket:
    """What may be spent: in any window of t seconds at most rate * t + burst."""

    __slots__ = ("_at", "_level", "burst", "rate", "spent", "until")

    def __init__(self, rate: float, burst: float, *, now: float) -> None:
        self.rate = rate
        self.burst = max(burst, 1.0)  # below one row nothing could ever be paid
        self.spent = 0.0
        """All that was ever taken."""
        self.until = inf
        """From then on it is empty and stays so, until somebody gives it more time. A fleet's buckets have an end; who
        slept past it finds nothing, for the bucket itself looks at the clock."""
        self._level = 0.0
        self._at = now

    def level(self, now: float) -> float:
        """What can be spent now."""
        if now > self._at:  # a clock that steps back adds nothing
            self._level = min(self.burst, self._level + (now - self._at) * self.rate)
            self._at = now
        if now >= self.until:
            self._level = min(self._level, 0.0)
        return self._level

    def rows(self, now: float, cost: float = 1.0) -> int:
        """Whole rows that can be paid now. What costs more than a full bucket is paid by a full one, in advance."""
        level = self.level(now)
        rows = int(level / cost + 1e-9)
        return 1 if not rows and level >= self.burst else rows

    def take(self, amount: float) -> None:
        """Pay; the caller has asked `rows` first."""
        self._level -= amount
        self.spent += amount

    def when(self, amount: float) -> float:
        """The time at which so much (at most `burst`) can be paid, if nobody else takes any; inf: not before its end."""
        short = min(amount, self.burst) - self._level
        at = self._at + max(0.0, short) / self.rate
        return at if at < self.until else inf

    def share(self, seconds: float, cost: float = 1.0) -> int:
        """The rows that a few moments of the rate amount to: at least one, at most the burst."""
        return max(1, int(min(self.burst, self.rate * seconds) / cost))

    def change(self, rate: float, burst: float, *, now: float) -> None:
        """Another rate from now on. What was saved up beyond the new burst is gone."""
        self._level = min(self.level(now), max(burst, 1.0))
        self.rate, self.burst = rate, max(burst, 1.0)


class Source:
    """A database: its budget and how many units it serves at a time."""

    __slots__ = ("bucket", "due", "free", "name", "timed", "turns", "witnesses")

    def __init__(self, name: str, bucket: Bucket, *, concurrency: int, timed: bool = False) -> None:
        self.name = name
        self.bucket = bucket
        self.timed = timed
        """Whether the bucket holds milliseconds of database time; else rows."""
        self.free = concurrency
        """Units that may start. One is taken by a start and given back when its load and write are through, so
        a Redis that hangs stops the loads too."""
        self.due = 0.0
        """What the keys that are due in all engines will take from the bucket, once it is their turn."""
        self.turns = Turns()
        self.witnesses = Witnesses()


class Cost:
    """What one row of a namespace takes from its source's bucket."""

    __slots__ = ("_due", "_source", "per_row")

    def __init__(self, source: Source) -> None:
        self.per_row = 1.0  # a row; or a millisecond, until the first load has told
        self._source = source
        self._due = 0

    def wait(self, rows: int) -> None:
        """So many more are due (fewer, if negative)."""
        self._due += rows
        self._source.due += rows * self.per_row

    def settle(self, rows: int, paid: float, milliseconds: float) -> None:
        """A load has ended: where time is the budget, what it took is paid, and the next one is guessed better."""
        if not self._source.timed:
            return
        self._source.bucket.take(milliseconds - paid)
        if not rows:
            return
        learned = self.per_row + _LEARNED * (min(milliseconds / rows, _DEAREST) - self.per_row)
        self._source.due += self._due * (learned - self.per_row)
        self.per_row = max(learned, 1e-6)
