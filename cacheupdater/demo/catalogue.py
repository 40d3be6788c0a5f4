"""The products: which are popular, which change often, and the interval that costs a given number of rows.

All is drawn from the seed alone, so every process of the demonstration draws the same. Popularity and changes are
independent of each other. A scheduler can exploit that, but has to find it out first.
"""

from __future__ import annotations

from itertools import accumulate
from math import exp
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING

from cacheupdater.demo import plan

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 1000  # shoppers that are drawn together
_LONGEST_S = 3600.0  # of an interval
_HALVINGS = 50  # of that interval, down to a microsecond


class Catalogue:
    """All products of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        random = Random(seed)
        self.products = list(range(1, plan.PRODUCTS + 1))
        """The most popular first."""
        random.shuffle(self.products)
        ranks = [(number + 0.5) / plan.PRODUCTS for number in range(plan.PRODUCTS)]
        self.restless = [exp(plan.UNEVEN * NormalDist().inv_cdf(rank)) for rank in ranks]
        """How often each product changes, as weights. All seeds have the same weights, in another order."""
        random.shuffle(self.restless)

    def shoppers(self) -> Iterator[int]:
        """The products in the order in which shoppers look at them, without end."""
        random, weights = Random(self._seed), list(accumulate(_popularity()))
        while True:
            yield from random.choices(self.products, cum_weights=weights, k=_AT_ONCE)

    def changing(self, random: Random, *, hot: bool) -> int:
        """The next product to change. While the hot ones stand still, all others are equally likely."""
        if not hot:
            return random.choice(self.products[plan.HOT :])
        (number,) = random.choices(self.products, weights=self.restless)
        return number


def interval(budget: float) -> float:
    """The interval between two loads of a product with which all products together cost `budget` rows per second.

    A product that is read mu times a second and loaded by the first read after T seconds is loaded every T + 1/mu.
    So T is the solution of: the sum of 1 / (T + 1/mu) over all products is the budget. It holds for a TTL and for
    `every` alike.
    """
    popularity = _popularity()
    apart = [sum(popularity) / (plan.READS_PER_S * weight) for weight in popularity]
    low, high = 0.0, _LONGEST_S
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum(1 / (middle + between) for between in apart) > budget:
            low = middle
        else:
            high = middle
    return high


def _popularity() -> list[float]:
    return [rank**-plan.SKEW for rank in range(1, plan.PRODUCTS + 1)]
