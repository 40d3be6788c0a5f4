"""How fast dropped changes may remove keys of a namespace: no faster than its budget loads them again.

A sender can announce more changes than the budget can serve, and each dropped one removes a value. Without a rate such a
flood would empty a namespace at Redis' speed; with the rate, values come back as fast as they go. One `Pace` per namespace, shared
by all engines of this process. The rate follows the budget, for a fleet moves that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.pace import Pace

if TYPE_CHECKING:
    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.budget import Cost, Source

RATE_MIN = 0.1  # keys a second: even if all of a budget is lent to others, each removal runs in the end


def removing(source: Source, quota: Bucket | None, cost: Cost) -> Pace:
    """The pace of one namespace."""

    def rate() -> float:
        rows = source.bucket.rate / cost.per_row
        return max(rows if quota is None else min(rows, quota.rate), RATE_MIN)

    return Pace(rate)
