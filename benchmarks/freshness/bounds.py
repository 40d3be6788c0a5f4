"""Bounds: the best results with so many rows, for a scheduler that knows more than any real one can.

*Optimum*: every rate is known, changes are Poisson, no read waits: the convex program of Cho and Garcia-Molina. At its
solution all keys that are refreshed have one marginal value, (mu/lam)(1 - (1+x)e^-x) = L with x = lam tau. *Blocking
optimum*: the same, but reads may wait, and each key has its own TTL. *Clairvoyant*: every future read and change is known, and
rows go right after the changes that most reads follow. `run` shows the bounds beside the policies, which never learn them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from freshness.worlds import World

HALVINGS = 60  # of an interval in logarithms: far below a float's error


def freshness(x: np.ndarray) -> np.ndarray:
    """The share of time in which a copy that is refreshed every tau is fresh, with x = lam tau."""
    safe = np.where(x > 1e-9, x, 1.0)
    return np.where(x > 1e-9, -np.expm1(-safe) / safe, 1.0)


def optimal_rates(mu: np.ndarray, lam: np.ndarray, budget: float, most: float = np.inf) -> np.ndarray:
    """Refreshes per second of each key that make most reads fresh; none is refreshed more than `most` times a second."""
    rates = np.zeros(len(mu))
    some = (lam > 0) & (mu > 0)
    mu, lam = mu[some], lam[some]
    worth = mu / lam

    def at(price: float) -> np.ndarray:
        goal = np.minimum(price / worth, 1.0)
        x = _inverse(lambda x: -np.expm1(-x) - x * np.exp(-x), goal)
        return np.minimum(np.where(goal < 1, lam / x, 0.0), most)

    rates[some] = at(_price(lambda price: at(price).sum(), budget, worth.max()))
    return rates


def optimal_stale(mu: np.ndarray, lam: np.ndarray, rates: np.ndarray) -> float:
    """Share of stale reads under these rates, fixed intervals."""
    x = np.divide(lam, rates, out=np.full(len(lam), np.inf), where=rates > 0)
    stale = np.where(lam > 0, 1 - freshness(x), 0.0)
    return float((mu * stale).sum() / mu.sum())


def blocking_stale(mu: np.ndarray, lam: np.ndarray, budget: float) -> float:
    """Share of stale reads if each key has its best TTL, and reads after it wait."""
    some = (lam > 0) & (mu > 0)
    mu_all, mu, lam = mu, mu[some], lam[some]
    worth = mu / lam

    def ttl(price: float) -> np.ndarray:
        """x = lam tau at which W(tau) + p(tau) = price; infinite if there is none."""

        def value(x: np.ndarray) -> np.ndarray:
            return (worth * (-np.expm1(-x) - x * np.exp(-x)) - np.expm1(-x)) / (worth + 1)

        goal = np.minimum(price / (worth + 1), 1.0)
        return np.where(goal < 1, _inverse(value, goal), np.inf)

    def rows(price: float) -> np.ndarray:
        return 1 / (ttl(price) / lam + 1 / mu)

    if budget >= mu_all.sum():
        return 0.0
    x = ttl(_price(lambda price: rows(price).sum(), budget, worth.max() + 1))
    finite = np.isfinite(x)
    length = np.where(finite, x / lam + 1 / mu, np.inf)
    with np.errstate(invalid="ignore"):
        missed = np.where(finite, mu * (x + np.expm1(-x)) / lam / length, mu)
    return float(missed.sum() / mu_all.sum())


def clairvoyant_stale(world: World, budget: float) -> float:
    """Share of stale reads if each row goes where it prevents most of them."""
    reads, changes = world.reads, world.changes
    key_of_change = np.repeat(np.arange(world.keys), np.diff(changes.start))
    ends = np.append(changes.times[1:], world.seconds)
    last = changes.start[1:][np.diff(changes.start) > 0] - 1
    ends[last] = world.seconds
    # one scale for all keys: key by key, one world after the other
    scale = 2 * world.seconds
    line = reads.times + np.repeat(np.arange(world.keys), np.diff(reads.start)) * scale
    begin = np.maximum(changes.times, world.warm)
    ends = np.maximum(ends, world.warm)
    offset = key_of_change * scale
    followed = np.searchsorted(line, ends + offset) - np.searchsorted(line, begin + offset)
    total = int(np.count_nonzero(reads.times >= world.warm))
    kept = int(budget * world.judged)
    return float(np.sort(followed)[::-1][kept:].sum()) / total


def _inverse(value: Callable[[np.ndarray], np.ndarray], goal: np.ndarray) -> np.ndarray:
    """The x in (1e-9, 1e3) at which an increasing value reaches its goal."""
    low, high = np.full(len(goal), -21.0), np.full(len(goal), 7.0)
    for _ in range(HALVINGS // 2):
        middle = (low + high) / 2
        below = value(np.exp(middle)) < goal
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.exp((low + high) / 2)


def _price(spent: Callable[[float], float], budget: float, top: float) -> float:
    """The price at which exactly the budget is spent. Spending falls as the price rises."""
    low, high = np.log(top) - 60, np.log(top)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(float(np.exp(middle))) > budget else (low, middle)
    return float(np.exp((low + high) / 2))
