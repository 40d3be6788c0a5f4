"""Synthetic worlds: the times of all reads and changes of all keys. Settings A to H, and one whose rates shift.

A world is made once from a setting and a seed, and judged under many policies, so all policies see the same reads and
changes. Only `bounds` and the oracle of `baselines` may look at its true rates. Tests make small worlds: every number of a
setting can be scaled down.

Seeds 1 to 5 are for tuning. Seeds 101 to 105 are used only after the defaults are frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from freshness.compiled import Csr, by_key

TUNING_SEEDS = (1, 2, 3, 4, 5)
TEST_SEEDS = (101, 102, 103, 104, 105)


@dataclass(frozen=True)
class World:
    """Reads and changes of n keys in [0, seconds). Reads before `warm` are not judged."""

    name: str
    seconds: float
    warm: float
    mu: np.ndarray  # true reads/s of each key
    lam: np.ndarray  # true changes/s of each key
    times: np.ndarray  # f8: all reads, ascending ...
    ids: np.ndarray  # i4: ... and their keys
    reads: Csr
    changes: Csr
    before: np.ndarray  # f8 <= 0: each key's last change before the world began

    @property
    def keys(self) -> int:
        return len(self.mu)

    @property
    def judged(self) -> float:
        """The seconds that are judged."""
        return self.seconds - self.warm


@dataclass(frozen=True)
class Setting:
    """The parameters of a world. The defaults are those of A."""

    name: str
    zipf: float = 1.0  # of the reads
    sigma: float = 1.5  # of the lognormal change rates; 0: all equal
    pairing: float = 0.0  # correlation of the logarithms of read and change rate
    static: float = 0.0  # share of the keys that never change
    cluster: float = 1.0  # changes come in clusters of so many on average
    cluster_gap: float = 3.0  # mean seconds within a cluster
    redrawn: float = 0.0  # share of the keys whose change rate is drawn anew at each shift
    shifts: tuple[float, ...] = ()  # when, as shares of the time
    keys: int = 20_000
    reads: float = 5_000.0  # per second
    changes: float = 100.0  # per second
    seconds: float = 3_600.0
    warm: float = 1_200.0

    def scaled(self, **smaller: float) -> Setting:
        return replace(self, **smaller)


SETTINGS = {
    each.name: each
    for each in (
        Setting("A"),
        Setting("B", pairing=0.7),
        Setting("C", pairing=-0.7),
        Setting("D", sigma=0.0),
        Setting("E", static=0.8),
        Setting("F", cluster=5.0),
        Setting("G", zipf=1.2, sigma=2.5),
        Setting("H", zipf=0.7),
        Setting("shift", static=0.5, redrawn=0.3, shifts=(0.45, 0.7)),
    )
}
MEANING = {
    "A": "reads and changes uncorrelated, Zipf 1.0",
    "B": "keys that are read more change more (0.7)",
    "C": "keys that are read more change less (-0.7)",
    "D": "all keys change alike",
    "E": "80 % of the keys never change",
    "F": "changes in bursts of about 5",
    "G": "heavy tails: Zipf 1.2, sigma 2.5",
    "H": "flat reads: Zipf 0.7",
    "shift": "half never change; 30 % of rates drawn anew, twice",
}


def make(setting: Setting, seed: int) -> World:
    """The world of this setting and seed."""
    rng = np.random.default_rng(seed)
    n = setting.keys
    mu = zipf(n, setting.zipf) * setting.reads
    lam = _rates(setting, rng)
    spans = np.array([0.0, *setting.shifts, 1.0]) * setting.seconds
    before = -rng.exponential(1.0, n) / np.maximum(lam, 1e-9)
    parts = []
    for begin, end in pairwise(spans):
        if parts:
            lam = np.where(rng.random(n) < setting.redrawn, _rates(setting, rng), lam)
        parts.append(_changes(setting, lam, (begin, end), rng))
    at, key = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(at, kind="stable")
    times = moments(setting.reads, setting.seconds, rng)
    ids = draw(mu, len(times), rng)
    return World(
        name=setting.name,
        seconds=setting.seconds,
        warm=setting.warm,
        mu=mu,
        lam=lam,
        times=times,
        ids=ids,
        reads=by_key(times, ids, n),
        changes=by_key(at[order], key[order], n),
        before=before,
    )


def zipf(n: int, exponent: float) -> np.ndarray:
    """Shares of n keys, the most popular first."""
    weights = np.arange(1, n + 1, dtype=float) ** -exponent
    return weights / weights.sum()


def moments(rate: float, seconds: float, rng: np.random.Generator) -> np.ndarray:
    """The times of a Poisson process."""
    return np.sort(rng.random(rng.poisson(rate * seconds)) * seconds)


def draw(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """So many keys, drawn with these weights."""
    edges = np.cumsum(weights)
    uniform = rng.random(count) * edges[-1]
    keys = np.searchsorted(edges, uniform, side="right")
    return np.minimum(keys, len(weights) - 1).astype(np.int32)


def _rates(setting: Setting, rng: np.random.Generator) -> np.ndarray:
    n = setting.keys
    logarithm = np.sqrt(1 - setting.pairing**2) * rng.standard_normal(n)
    if setting.pairing:
        popular = np.log(zipf(n, setting.zipf))
        logarithm += setting.pairing * (popular - popular.mean()) / popular.std()
    lam = np.exp(setting.sigma * logarithm)
    lam[rng.random(n) < setting.static] = 0.0
    return lam * (setting.changes / lam.sum())


def _changes(
    setting: Setting, lam: np.ndarray, span: tuple[float, float], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    begin, end = span
    counts = rng.poisson(lam * (end - begin) / setting.cluster)
    key = np.repeat(np.arange(len(lam)), counts)
    at = begin + rng.random(len(key)) * (end - begin)
    if setting.cluster > 1:
        sizes = rng.geometric(1 / setting.cluster, len(key))
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        gaps = rng.exponential(setting.cluster_gap, sizes.sum())
        gaps[first[np.arange(len(first)) == first]] = 0.0
        run = np.cumsum(gaps)
        at = np.repeat(at, sizes) + run - run[first]
        key = np.repeat(key, sizes)
        inside = at < end
        at, key = at[inside], key[inside]
    return at, key
