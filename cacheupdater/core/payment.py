"""What a unit costs its source's budget and its namespace's quota, from its start to its end.

`schedule` lets a unit pay when it starts; the engine hears when its statement leaves, and how it ended. Paid is at first
only set apart, and spent when the statement leaves: what the database sees in any window is then within the budget,
however long a token or a connection took. What never left is given back. Pure, and without a state of its own: `paid`,
`rows` and `left` of the unit say how far it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.core.budget import Bucket
    from cacheupdater.core.unit import Unit


def pay(unit: Unit, now: float) -> None:
    """It starts; the caller has asked both buckets for so many rows."""
    unit.began = now
    unit.rows = len(unit.keys)
    unit.paid = unit.rows * unit.namespace.cost.per_row
    unit.left = False
    for bucket, amount in _bills(unit):
        bucket.set_apart(amount)


def leave(unit: Unit, now: float) -> bool:
    """Its statement leaves now; False: it must not, for what it has paid does not count any more."""
    if unit.left:
        return True
    source = unit.namespace.source
    for bucket, amount in _bills(unit):
        # what others took longer than guessed is a debt of the bucket, and no fault of this unit
        need = 0.0 if bucket is source.bucket and source.timed else amount
        if not bucket.covers(need, unit.began, now):
            return False
    _spend(unit, now)
    return True


def give_back(unit: Unit, rows: int, now: float) -> None:
    """So many of its rows have cost the database nothing, so they cost neither its budget nor their quota."""
    part = rows / unit.rows if unit.rows else 0.0
    for bucket, amount in _bills(unit):
        if unit.left:
            bucket.give_back(amount * part, unit.began, now)
        else:
            bucket.put_back(amount * part, unit.began, now)
    unit.namespace.source.turns.give_back(unit.namespace, unit.paid * part)
    unit.rows -= rows
    unit.paid -= unit.paid * part


def end(unit: Unit, now: float, *, seconds: float, asked: bool = True, rows: int = 0) -> None:
    """It has ended, after so long a load of so many rows. Where time is the budget, what it took is paid."""
    if not asked:
        give_back(unit, unit.rows, now)
    elif not unit.left:  # nobody has told
        _spend(unit, now)
    unit.namespace.cost.settle(rows if asked else 0, unit.paid, seconds * 1000.0)
    unit.rows, unit.paid = 0, 0.0


def cut_off(unit: Unit, now: float) -> None:
    """It was cancelled, and nobody will say how it ended."""
    if not unit.left:
        give_back(unit, unit.rows, now)


def _spend(unit: Unit, now: float) -> None:
    unit.left = True
    for bucket, amount in _bills(unit):
        bucket.let_go(amount, now)


def _bills(unit: Unit) -> Iterator[tuple[Bucket, float]]:
    yield unit.namespace.source.bucket, unit.paid
    if unit.namespace.quota is not None:
        yield unit.namespace.quota, float(unit.rows)
