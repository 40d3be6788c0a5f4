"""What a database can afford: rows per second and units at a time.

One `Source` per configured source, one `Bucket` per quota, shared by all engines of this process (they run
in one event loop, so there is no lock). Pure: `now` is an argument. Our own bucket of thirty lines because it
must answer "when could n rows be paid?" and starts empty, so that a restart loop cannot spend bursts.
"""

from __future__ import annotations


class Bucket:
    """Rows that may be loaded: in any window of t seconds at most rate * t + burst."""

    __slots__ = ("_at", "_rows", "burst", "rate")

    def __init__(self, rate: float, burst: float, *, now: float) -> None:
        self.rate = rate
        self.burst = max(burst, 1.0)  # below one row nothing could ever be paid
        self._rows = 0.0
        self._at = now

    def rows(self, now: float) -> int:
        """Whole rows that can be paid now."""
        if now > self._at:  # a clock that steps back adds nothing
            self._rows = min(self.burst, self._rows + (now - self._at) * self.rate)
            self._at = now
        return int(self._rows + 1e-9)

    def take(self, rows: int) -> None:
        """Pay; the caller has asked `rows` first."""
        self._rows -= rows

    def when(self, rows: int) -> float:
        """The time at which so many rows (at most `burst`) can be paid, if nobody else takes any."""
        short = min(rows, self.burst) - self._rows
        return self._at + max(0.0, short) / self.rate

    def share(self, seconds: float) -> int:
        """What a few moments of the rate amount to: at least one row, at most the burst."""
        return max(1, int(min(self.burst, self.rate * seconds)))


class Source:
    """A database: its row budget and how many units it serves at a time."""

    __slots__ = ("bucket", "free", "name")

    def __init__(self, name: str, bucket: Bucket, *, concurrency: int) -> None:
        self.name = name
        self.bucket = bucket
        self.free = concurrency
        """Units that may start. One is taken by a start and given back when its load and write are through, so
        a Redis that hangs stops the loads too."""
