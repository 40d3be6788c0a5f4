"""The traffic of a run: read rates, change rates, and the cost of an interval, all known before the run.

Reads follow Zipf's law. Change rates are lognormal and independent of the reads. Everything is drawn from a seed, so every
lane sees the same traffic. Only the intervals of `fixed` and `TTL` may be computed from the true rates of reads.
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
    """The size of the traffic."""

    keys: int = 50_000
    reads: float = 5_000.0  # per second
    changes: float = 100.0  # per second
    seconds: float = 600.0
    readers: int = 2  # processes
    seed: int = 11

    @property
    def warm(self) -> float:
        """The seconds that are not judged."""
        return self.seconds * WARM

    def read_shares(self) -> np.ndarray:
        """The share of the reads of each key."""
        popular = 1.0 / np.arange(1, self.keys + 1) ** ZIPF
        return np.random.default_rng(self.seed).permutation(popular / popular.sum())

    def change_rates(self) -> np.ndarray:
        """The changes per second of each key."""
        rates = np.random.default_rng(self.seed + 1).lognormal(0.0, SIGMA, self.keys)
        return rates * (self.changes / rates.sum())

    def interval(self, rows: float) -> float:
        """The seconds of `every`, or of a TTL, that cost so many rows a second.

        A key costs one row per interval plus the wait for its next read. All keys cost the sum of mu / (1 + mu * interval).
        """
        mu = self.read_shares() * self.reads
        low, high = 1e-3, 1e6
        for _ in range(80):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if (mu / (1 + mu * middle)).sum() > rows else (low, middle)
        return high


class Inherited(NamedTuple):
    """The contents, by key, of a cache that was refreshed at an interval for long."""

    stale: np.ndarray  # whether the value is out of date
    left: np.ndarray  # seconds left of a TTL; 0: absent in the TTL lane


def inherited(traffic: Traffic, interval: float) -> Inherited:
    """The cache with which every lane begins: neither empty, nor fresh by chance."""
    draw = np.random.default_rng(traffic.seed + 2)
    mu = traffic.read_shares() * traffic.reads
    age = draw.random(traffic.keys) * interval
    stale = draw.random(traffic.keys) < -np.expm1(-traffic.change_rates() * age)
    present = draw.random(traffic.keys) < mu * interval / (1 + mu * interval)
    return Inherited(stale, np.where(present, interval - age, 0.0))
