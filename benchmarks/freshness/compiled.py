"""Sets numba up: machine code is kept under build/, which git ignores and `make clean` removes.

The simulator keeps all events as a `Csr`: those of key 0 in order of time, then those of key 1, and so on. A `Csr` is a named
tuple of arrays, so compiled code accepts it directly.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

numba.config.CACHE_DIR = str(Path(__file__).parents[2] / "build" / "numba")

compiled = partial(numba.njit, cache=True)


class Csr(NamedTuple):
    """Event times by key: those of key i are `times[start[i]:start[i + 1]]`, ascending."""

    start: np.ndarray  # i8, one more than there are keys
    times: np.ndarray  # f8, seconds


def by_key(times: np.ndarray, keys: np.ndarray, n: int) -> Csr:
    """Sorts events, given in order of time, by key."""
    return Csr(*_grouped(times, keys.astype(np.int32, copy=False), n))


@compiled
def _grouped(times, keys, n):
    start = np.zeros(n + 1, np.int64)
    for key in keys:
        start[key + 1] += 1
    start = np.cumsum(start)
    at = start[:-1].copy()
    out = np.empty(len(times))
    for i in range(len(times)):
        out[at[keys[i]]] = times[i]
        at[keys[i]] += 1
    return start, out


@compiled
def after(times, low, high, moment):
    """The first index in `low:high` with a time after `moment`. Gallops, for the answer is mostly near."""
    step = 1
    while low + step < high and times[low + step] <= moment:
        low += step
        step *= 2
    top = min(high, low + step)
    while low < top:
        middle = (low + top) // 2
        if times[middle] <= moment:
            low = middle + 1
        else:
            top = middle
    return low
