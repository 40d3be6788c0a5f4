"""What a unit takes from its source and its quota, from its start to its end: rows, database time and a slot.

`schedule` makes a `Receipt` when a unit starts. The engine hears when its statement leaves, and how it ended. Nothing else
touches bucket, quota or slot for a unit. Its unseen keys are set apart in the absent bucket until its end. A payment is at first only set apart, and is spent when the statement leaves. So
what the database sees in any window is within the budget, however long a token or a connection took. If the statement never
leaves, the payment is given back. A receipt ends once, by `end` or by `cancel`; an evicted refresh keeps its slot until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.loads import Took, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.namespace import Namespace


_NOT_THE_SOURCES = (Verdict.KEY, Verdict.EITHER, Verdict.OPEN)  # a tuple: a set would hash names, in Python


class Receipt:
    """What one unit has paid."""

    __slots__ = ("_began", "_left", "_namespace", "_rows", "_suspects", "_unseen", "paid", "verdict")

    def __init__(
        self, namespace: Namespace, rows: int, now: float, *, unseen: int = 0, suspects: int = 0
    ) -> None:
        """A unit starts, with so many unseen keys, or of so many suspects, at most. Before, the caller has found its rows in both buckets, and a free slot."""
        self._namespace = namespace
        self._began = now
        self._rows = rows
        self._left = False
        self._unseen = unseen
        self._suspects = suspects
        self.verdict = Verdict.QUICK  # of its load, once it has ended
        self.paid = rows * namespace.cost.per_row
        """What the source's bucket has given."""
        namespace.source.slots.take(namespace, suspects=suspects)
        if unseen:
            namespace.absent_bucket.set_apart(unseen)
        for bucket, amount in self._bills():
            bucket.set_apart(amount)

    def leave(self, now: float) -> bool:
        """The unit's statement leaves now. False: it must not, for its payment does not count any more."""
        if self._left:
            return True
        source = self._namespace.source
        for bucket, amount in self._bills():
            # if other loads took longer than estimated, the bucket is in debt, but this unit has paid
            need = 0.0 if bucket is source.bucket and source.timed else amount
            if not bucket.covers(need, self._began, now):
                return False
        self._spend(now)
        return True

    def give_back(self, rows: int, now: float) -> None:
        """So many of the rows have cost the database nothing, so they cost neither its budget nor their quota."""
        part = rows / self._rows if self._rows else 0.0
        for bucket, amount in self._bills():
            if self._left:
                bucket.give_back(amount * part, self._began, now)
            else:
                bucket.put_back(amount * part, self._began, now)
        self._namespace.turns.give_back(self._namespace, self.paid * part)
        self._rows -= rows
        self.paid -= self.paid * part

    def end(
        self, now: float, *, seconds: float, asked: bool = True, rows: int = 0, answered: bool = False
    ) -> None:
        """The unit has ended. Its load of `rows` took `seconds`, and pays for them if the budget is time."""
        if not asked:
            self.give_back(self._rows, now)
        elif not self._left:  # nobody has reported that it left
            self._spend(now)
        self._namespace.cost.settle(rows if asked else 0, self.paid, seconds * 1000.0)
        if answered and rows and seconds:
            took = Took(self._began, rows, seconds)
            self.verdict = self._namespace.loads.judge(took, apart=self._suspects > 0)
        # a load with a slow key says nothing about its source
        if asked and seconds and not self._suspects and self.verdict not in _NOT_THE_SOURCES:
            self._namespace.source.slots.measured(self._namespace, seconds, now)
        self._free_the_slot()

    def cancel(self, now: float) -> None:
        """The unit was cut off, and nobody will report how it ended."""
        if not self._left:
            self.give_back(self._rows, now)
        self._free_the_slot()

    def _free_the_slot(self) -> None:
        self._namespace.source.slots.give_back(self._namespace, suspects=self._suspects)
        if self._unseen:
            self._namespace.absent_bucket.set_apart(-self._unseen)
        self._rows, self._unseen, self.paid = 0, 0, 0.0

    def _spend(self, now: float) -> None:
        self._left = True
        for bucket, amount in self._bills():
            bucket.let_go(amount, now)

    def _bills(self) -> Sequence[tuple[Bucket, float]]:
        namespace = self._namespace
        source = namespace.source.bucket, self.paid
        return (source,) if namespace.quota is None else (source, (namespace.quota, float(self._rows)))
