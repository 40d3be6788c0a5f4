"""How far a price has to move: what it would cost to load the keys that are worth a little less than it.

One per policy, which calls it whenever prices have moved. A price that follows the spending by a factor of e in a fixed time
is too slow where a few keys share a large budget, and too quick where a million share a small one. So the policies of all
partitions tell `market` how many rows lie just below its price, and the price moves just far enough to release what is missing.

Keys that were looked at a while ago may be worth a price that has fallen since: all are looked at again.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cacheupdater.price import learning
from cacheupdater.price.table import IDLE, LOADED, SPACE, STATUS, TOUCHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cacheupdater.price.index import Doubles
    from cacheupdater.price.spaces import Spaces
    from cacheupdater.price.table import Rows, Table

SOUNDED_EVERY = 0.5  # seconds
SOUNDED = 1_000  # keys that are looked at: 0.2 ms; in a large table they are spread evenly
FALLEN = 0.8  # of a price: a key is looked at twice while its own worth grows by as much
_NEAR = exp(-1.0)  # of the price


class Priced(Protocol):
    """The policy, as far as this module asks it."""

    table: Table
    spaces: Spaces
    born: float

    def worth_of(
        self, rows: Rows, state: NDArray[np.float32], *, mu: Doubles, tau: Doubles, space: NDArray[np.intp]
    ) -> tuple[Doubles, Doubles]:
        """The chance to be stale, and the index."""


class Sounding:
    """Sounds the keys of one partition."""

    def __init__(self, policy: Priced) -> None:
        self._policy = policy
        self._highest = policy.spaces.price.copy()  # since all keys were looked at
        self._sounded = policy.born

    def follow(self, now: float) -> None:
        """Prices may have moved."""
        prices = self._policy.spaces.price
        self._highest = np.maximum(self._highest, prices)
        if (prices < FALLEN * self._highest).any():
            self._highest = prices.copy()
            self._look_again(now)
        if not self._sounded <= now < self._sounded + SOUNDED_EVERY:
            self._sounded = now
            self._sound(now)

    def _look_again(self, now: float) -> None:
        table = self._policy.table
        due, status = table.due[: table.high], table.state[: table.high, STATUS]
        due[np.isfinite(due) & (status == IDLE)] = now

    def _sound(self, now: float) -> None:
        policy = self._policy
        table, spaces = policy.table, policy.spaces
        stride = max(1, table.high // SOUNDED)
        rows = np.arange(int(now / SOUNDED_EVERY) % stride, table.high, stride, dtype=np.int32)
        rows = rows[np.isfinite(table.due[rows])]
        state, times = table.look(rows)
        space = state[:, SPACE].astype(np.intp)
        mu = learning.wanted(state, now - times[:, TOUCHED], age=now - policy.born)
        tau = np.maximum(now - times[:, LOADED], 0.0)
        _, value = policy.worth_of(rows, state, mu=mu, tau=tau, space=space)
        ratio = value * spaces.weight[space] / spaces.price[space]
        near = space[(ratio < 1.0) & (ratio > _NEAR)]
        costs = np.bincount(spaces.market[near], spaces.cost[near], len(spaces.markets)) * stride
        for market, cost in zip(spaces.markets, costs.tolist(), strict=True):
            market.depths[policy] = cost
