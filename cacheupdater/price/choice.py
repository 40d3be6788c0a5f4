"""Which of the loads that are worth their price can be paid: per source, per quota, the most valuable first.

`policy` calls it with the loads that one call has found worth their price. The bucket would hold back the rest anyway, but
it serves loads in the order in which they come. Here the best are chosen.
"""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cacheupdater.price.index import Doubles
    from cacheupdater.price.market import Market
    from cacheupdater.price.spaces import Spaces

_ROUNDING = 1e-6  # of a row: sums of costs that come and go


def affordable(spaces: Spaces, value: Doubles, space: NDArray[np.intp], now: float) -> NDArray[np.bool_]:
    """A mask over `value`."""
    granted = np.zeros(len(value), bool)
    for number, market in enumerate(spaces.markets):
        mine = np.flatnonzero(spaces.market[space] == number)
        # a full bucket pays for a row that costs more than it holds, in advance
        cost = np.minimum(spaces.cost[space], market.source.bucket.burst)
        mine = _best(mine, value, cost, market.room(now) + _ROUNDING)
        granted[_earned(mine, value, market)] = True
    for number in spaces.quotas:
        quota = spaces.namespaces[number].quota
        mine = np.flatnonzero(granted & (space == number))
        if quota is not None and len(mine):
            granted[mine] = False
            granted[_best(mine, value, np.ones(len(value)), quota.soon(now))] = True
    return granted


def _earned(mine: NDArray[np.intp], value: Doubles, market: Market) -> NDArray[np.intp]:
    """Of these places those that readers have earned. A value that has reached its greatest age need not be earned."""
    if isinf(market.credit):
        return mine
    late = np.isinf(value[mine])
    chosen = _best(mine[~late], value, np.ones(len(value)), market.credit)
    market.lend(len(chosen))
    return np.concatenate((mine[late], chosen))


def _best(mine: NDArray[np.intp], value: Doubles, cost: Doubles, room: float) -> NDArray[np.intp]:
    """Of these places the most valuable that together cost no more than there is room for."""
    costs = cost[mine]
    if float(costs.sum()) <= room:
        return mine
    order = np.argsort(-value[mine], kind="stable")
    return mine[order[np.cumsum(costs[order]) <= room]]
