"""The namespaces that a policy prices, as columns: a vectorised decision looks them up by a key's namespace.

One per `policy`. It is refreshed when prices are, for costs are measured and budgets change while we run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cacheupdater.price.posterior import SHAPE
from cacheupdater.price.table import SPACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cacheupdater.core.budget import Source
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.price.index import Doubles
    from cacheupdater.price.market import Market
    from cacheupdater.price.table import Table

_NEARLY = 0.9  # of `max_age`: a newcomer is loaded in time, and not counted as too old before anybody knows
LIFE_MIN = 30.0  # seconds: the first keys of an empty table say nothing about how many there will be


class Spaces:
    """Arrays by the number of the namespace."""

    def __init__(self, namespaces: Sequence[Namespace], markets: Mapping[Source, Market]) -> None:
        """Only namespaces with terms count. Each gets a number, its place among them."""
        self.namespaces = [each for each in namespaces if each.terms is not None]
        self.number = {each: number for number, each in enumerate(self.namespaces)}
        self.markets = list(dict.fromkeys(markets[each.source] for each in self.namespaces))
        terms = [each.terms for each in self.namespaces if each.terms is not None]
        self.market = np.array(
            [self.markets.index(markets[each.source]) for each in self.namespaces], np.intp
        )
        self.within = np.array([markets[each.source].spaces[each] for each in self.namespaces], np.intp)
        """Its number in its market's meter."""
        self.worth = np.array([each.worth for each in terms])
        self.max_age = np.array([each.max_age or np.inf for each in terms])
        self.ageing = bool(np.isfinite(self.max_age).any())
        self.stamps = {each.stamp for each in terms} - {""}
        self.quotas = [number for number, each in enumerate(self.namespaces) if each.quota is not None]
        self.cost = np.ones(len(terms))
        self.weight = np.ones(len(terms))
        """Worth per cost."""
        self.price = np.ones(len(terms))
        self.kappa = np.zeros(len(terms))
        self.life = np.full(len(terms), LIFE_MIN)
        """A guess of the seconds that a value of an unknown key lives: the budget loads all keys once in this time."""
        self.refresh()

    @property
    def age(self) -> Doubles:
        """A guess of the age of an unknown key's value: old enough to be looked at soon."""
        return np.asarray(np.minimum(self.life, _NEARLY * self.max_age), np.float64)

    @property
    def prior(self) -> Doubles:
        """b of a key that nothing is known about."""
        return SHAPE * self.life

    def of(self, column: Doubles, space: NDArray[np.intp]) -> Doubles:
        """The column's value for each of these keys; of a single namespace one value does for all."""
        return column if len(column) == 1 else column[space]

    def tracked(self, table: Table) -> list[tuple[Market, int]]:
        """How many keys of each namespace the table knows, with the namespace's market."""
        used = np.isfinite(table.due[: table.high])
        counts = np.bincount(
            table.state[: table.high, SPACE][used].astype(np.intp), minlength=len(self.number)
        )
        return [(self.markets[self.market[n]], int(count)) for n, count in enumerate(counts)]

    def refresh(self) -> None:
        """Take over what may have changed since the last call."""
        price, round_trip = [], []
        self.cost = np.array([each.cost.per_row for each in self.namespaces])
        self.weight = self.worth / self.cost
        for number, market in enumerate(self.markets):
            mine = self.cost[self.market == number]
            price.append(market.price)
            round_trip.append(market.tracked * float(mine.mean()) / market.source.bucket.rate)
        self.price = np.array(price)[self.market]
        self.life = np.maximum(np.array(round_trip)[self.market], LIFE_MIN)
        self.kappa = 1.0 / np.minimum(self.life, self.max_age)
