"""What a database can afford: rows (or milliseconds of its time) per second, and units at a time.

One `Source` per configured source and one `Cost` per namespace, shared by all engines of this process. A source's bucket says
how much may be spent at any time, and its `priorities` say which namespace is next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.breaker import Breaker
from cacheupdater.core.outage import Outage
from cacheupdater.core.pace import unread_pace
from cacheupdater.core.priorities import Priorities
from cacheupdater.core.slots import SLOW_S, TIMES_AS_LONG, Slots
from cacheupdater.core.witnesses import Witnesses

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.witnesses import Witness

_LEARNED = 0.1  # weight of one load in the mean cost of a row: some ten units
_DEAREST = (
    60_000.0  # milliseconds; a row that seems to cost more was a pause of ours, not work of the database
)


class Source:
    """A database: its budget and how many units it serves at a time."""

    __slots__ = (
        "breaker",
        "bucket",
        "due",
        "name",
        "outage",
        "priorities",
        "slots",
        "timed",
        "unread",
        "witnesses",
    )

    def __init__(self, name: str, bucket: Bucket, *, concurrency: int, timed: bool = False) -> None:
        self.name = name
        self.bucket = bucket
        self.timed = timed
        """Whether the bucket holds milliseconds of database time; else rows."""
        self.slots = Slots(concurrency)
        self.breaker = Breaker()
        self.due = 0.0
        """What the keys that are due in all engines will take from the bucket, once it is their turn. See `Cost`."""
        self.priorities = Priorities(bucket)
        self.witnesses = Witnesses()
        self.outage = Outage()
        self.unread = unread_pace()

    def began(self, unit: Witness, now: float) -> None:
        """The unit runs."""
        self.witnesses.began(unit, now)
        self.breaker.began(unit)

    def answered(self, unit: Witness, now: float) -> None:
        """The source has answered the unit, be it with an error."""
        self.witnesses.answered(unit, now)
        self.breaker.answered(now, self.bucket.spent)

    def troubled(self, unit: Witness, namespace: Hashable, now: float, *, seconds: float) -> None:
        """The source has not answered the unit: it refused or cut the connection, or the time was over after so many seconds.

        A namespace whose loads always take that long says nothing about its source.
        """
        usual = self.slots.usual(namespace)
        if seconds < SLOW_S or usual is None or seconds >= TIMES_AS_LONG * usual:
            self.breaker.troubled(unit, now)
        self.gone(unit)

    def gone(self, unit: Witness) -> None:
        """The unit has ended in a way that says nothing about the source."""
        self.witnesses.gone(unit)
        self.breaker.gone(unit)


class Cost:
    """What one row of a namespace takes from its source's bucket."""

    __slots__ = ("_claimed", "_due", "_quota", "_source", "per_row")

    def __init__(self, source: Source, quota: Bucket | None = None) -> None:
        self.per_row = 1.0  # a row; or a millisecond, until the first load has been measured
        self._source = source
        self._quota = quota
        self._due = 0
        self._claimed = 0.0  # its part of `source.due`

    @property
    def due(self) -> int:
        """Rows of this namespace that are due in all engines."""
        return self._due

    def wait(self, rows: int) -> None:
        """So many more rows are due (fewer, if negative).

        What is due claims the source's budget, but no more of it than the quota pays in a second. Else thousands of keys that wait
        for their quota would keep the policy from asking for any key of another namespace.
        """
        self._due += rows
        quota = self._quota
        claims = self._due if quota is None else min(self._due, max(1.0, quota.rate))
        claimed = claims * self.per_row
        self._source.due += claimed - self._claimed
        self._claimed = claimed

    def settle(self, rows: int, paid: float, milliseconds: float) -> None:
        """A load has ended. If the budget is time, the load pays for its time, and the cost of a row is estimated anew."""
        if not self._source.timed:
            return
        self._source.bucket.take(milliseconds - paid)
        if not rows:
            return
        learned = self.per_row + _LEARNED * (min(milliseconds / rows, _DEAREST) - self.per_row)
        self.per_row = max(learned, 1e-6)
        self.wait(0)  # what is due claims more of the budget now, or less
