"""Who reads what, what changes, and what an interval costs: the numbers of a run, before it runs.

Reads follow Zipf's law; change rates are lognormal and know nothing of the reads. Everything is drawn from a seed, so
that every lane sees the same traffic. Only the intervals of `fixed` and `TTL` may look at the true rates of reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ZIPF = 1.0
SIGMA = 1.5  # of the logarithm of the change rates
AT_ONCE = 25  # keys of one MGET
WARM = 1 / 3  # share of a lane that is not judged


@dataclass(frozen=True)
class Traffic:
    """How much of everything."""

    keys: int = 50_000
    reads: float = 5_000.0  # per second
    changes: float = 100.0  # per second
    seconds: float = 600.0
    readers: int = 2  # processes
    seed: int = 11

    @property
    def warm(self) -> float:
        """Seconds before anything is judged."""
        return self.seconds * WARM

    def read_shares(self) -> np.ndarray:
        """Of each key."""
        popular = 1.0 / np.arange(1, self.keys + 1) ** ZIPF
        return np.random.default_rng(self.seed).permutation(popular / popular.sum())

    def change_rates(self) -> np.ndarray:
        """Of each key, per second."""
        rates = np.random.default_rng(self.seed + 1).lognormal(0.0, SIGMA, self.keys)
        return rates * (self.changes / rates.sum())

    def interval(self, rows: float) -> float:
        """Seconds of `every`, or of a TTL, that cost so many rows a second.

        A key costs a row per interval and wait for the next read: sum of mu / (1 + mu * interval).
        """
        mu = self.read_shares() * self.reads
        low, high = 1e-3, 1e6
        for _ in range(80):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if (mu / (1 + mu * middle)).sum() > rows else (low, middle)
        return high


class Inherited(NamedTuple):
    """What a cache holds that has been refreshed at an interval for long, by key."""

    stale: np.ndarray  # whether the value is out of date
    left: np.ndarray  # seconds that a TTL would let it live on; 0: it is absent, where a TTL rules


def inherited(traffic: Traffic, interval: float) -> Inherited:
    """Every lane begins with it: neither in an empty cache, nor in one that happens to be fresh."""
    draw = np.random.default_rng(traffic.seed + 2)
    mu = traffic.read_shares() * traffic.reads
    age = draw.random(traffic.keys) * interval
    stale = draw.random(traffic.keys) < -np.expm1(-traffic.change_rates() * age)
    present = draw.random(traffic.keys) < mu * interval / (1 + mu * interval)
    return Inherited(stale, np.where(present, interval - age, 0.0))
