"""Half-real worlds: real change times of real things, under reads in a real order or of a real popularity.

*Changes*: three years of commits to the manifests of two Scoop buckets (79,535 changes of 3,281 files), mapped linearly
onto 36,000 s, which makes 2.21 changes/s. A second here stands for 44 minutes: absolute seconds mean nothing.
*Reads*, one of
 - `orm`: the order of reads of a real ORM (caffeine's `orm-busy`, 5 M reads of 76,349 keys). Reads of the 3,281 most read
   keys are kept: 81 reads/s, in their order, at Poisson times (the trace has no times);
 - `popular`: synthetic. Poisson, 100/s, Zipf 1.09, which is what a package index shows;
 - `sessions`: synthetic. As `popular`, but each visitor reads its key three times, some seconds apart.
*Pairing*: no trace has both reads and changes, so we choose which read key stands for which changing file: at random, or so
that the ranks correlate by 0.7 (keys that are read more change more).

The traces stay outside the repository and are decompressed as they are read. Without them these worlds are left out.
"""

from __future__ import annotations

import csv
import lzma
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshness.compiled import by_key
from freshness.worlds import World, draw, moments, zipf

TRACES = Path(__file__).parents[3] / "shared" / "traces"
CHANGES = "scoop_updates_3y.csv.xz"
READS = "orm-busy.trace.xz"
SECONDS = 36_000.0
WARM = 9_000.0
RATE = 100.0  # reads/s where they are synthetic
ZIPF = 1.09
SESSION = 3  # reads of one visitor ...
PAUSE_S = 10.0  # ... on average so far apart
PAIRINGS = {"random": 0.0, "correlated": 0.7}
KINDS = ("orm", "popular", "sessions")
ROWS = tuple(
    f"{kind} x {pairing}"
    for kind in KINDS
    for pairing in PAIRINGS
    if (kind, pairing) != ("sessions", "correlated")
)


class Changes(NamedTuple):
    """All changes, ascending, of files 0 to n - 1."""

    times: np.ndarray
    files: np.ndarray
    n: int


def present(traces: Path) -> bool:
    return all((traces / name).is_file() for name in (CHANGES, READS))


def make(name: str, seed: int, traces: Path, *, seconds: float = SECONDS) -> World:
    """One of ROWS. Fewer `seconds` keep the rates and cut the world short (for tests)."""
    kind, pairing = name.split(" x ")
    rng = np.random.default_rng(seed)
    changes = _changes(traces)
    counts = np.bincount(changes.files, minlength=changes.n).astype(float)
    # a little noise makes equal counts differ; file_of[i] changes when key i does
    ascending = np.argsort(counts + rng.random(changes.n) * 1e-3)
    file_of = ascending[_ranks(changes.n, PAIRINGS[pairing], rng)]
    key_of = np.argsort(file_of)
    times, ids = _reads(kind, changes.n, traces, rng)
    cut = np.searchsorted(times, seconds)
    times, ids = times[:cut], ids[:cut]
    cut = np.searchsorted(changes.times, seconds, side="right")
    lam = counts[file_of] / SECONDS
    return World(
        name=name,
        seconds=seconds,
        warm=WARM * seconds / SECONDS,
        mu=np.bincount(ids, minlength=changes.n) / seconds,
        lam=lam,
        times=times,
        ids=ids,
        reads=by_key(times, ids, changes.n),
        changes=by_key(changes.times[:cut], key_of[changes.files[:cut]], changes.n),
        before=-rng.exponential(1.0, changes.n) / lam,
    )


def _changes(traces: Path) -> Changes:
    with lzma.open(traces / CHANGES, "rt", newline="") as lines:
        rows = [(float(each["unix_ts"]), each["key"]) for each in csv.DictReader(lines)]
    names, files = np.unique([name for _, name in rows], return_inverse=True)
    at = np.array([moment for moment, _ in rows])
    order = np.argsort(at, kind="stable")
    at = (at - at.min()) / (at.max() - at.min()) * SECONDS
    return Changes(at[order], files[order], len(names))


def _reads(kind: str, n: int, traces: Path, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The times and keys of reads. Key 0 is read most."""
    if kind == "orm":
        with lzma.open(traces / READS) as trace:
            read = np.frombuffer(trace.read(), ">i4")
        _, ids, counts = np.unique(read, return_inverse=True, return_counts=True)
        rank = np.empty(len(counts), np.int32)
        rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
        ids = rank[ids]
        ids = ids[ids < n]
        return np.sort(rng.random(len(ids))) * SECONDS, ids
    if kind == "popular":
        times = moments(RATE, SECONDS, rng)
        return times, draw(zipf(n, ZIPF), len(times), rng)
    first = moments(RATE / SESSION, SECONDS, rng)
    visits = draw(zipf(n, ZIPF), len(first), rng)
    pauses = rng.exponential(PAUSE_S, (len(first), SESSION))
    pauses[:, 0] = 0.0
    times = (first[:, None] + np.cumsum(pauses, axis=1)).ravel()
    ids = np.repeat(visits, SESSION)
    order = np.argsort(times)
    return times[order], ids[order]


def _ranks(n: int, pairing: float, rng: np.random.Generator) -> np.ndarray:
    """The rank among the changes that each read key gets, by a normal copula. Key 0 is read most."""
    popularity = np.sort(rng.standard_normal(n))[::-1]
    other = pairing * popularity + np.sqrt(1 - pairing**2) * rng.standard_normal(n)
    return np.argsort(np.argsort(other))
