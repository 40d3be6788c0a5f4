"""A sample of the keys that a policy knows, as columns: `report` looks at it instead of a million rows.

Half of a key's chance to be drawn is its share of the reads; the other half is the same for all. Each drawn key says how many
it stands for. So sums over the sample are unbiased, over reads and over keys alike. Reads the table and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cacheupdater.price import learning
from cacheupdater.price.table import SLOW, SPACE, TOUCHED, A, B

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cacheupdater.price.index import Doubles
    from cacheupdater.price.policy import Price

KEYS = 2_000
"""Keys of one sample. Shares are exact to one or two hundredths."""

PIECE = 200_000
"""Rows looked through at a time: some 4 ms, in which nothing else runs."""

_READS_MIN = 1e-9  # reads per second; logarithms stay finite


class KeySample(NamedTuple):
    """Some of a policy's keys."""

    space: NDArray[np.intp]  # the number of the namespace within the policy
    mu: Doubles  # reads per second
    a: Doubles
    b: Doubles
    silent: Doubles  # changes per second that nobody announced
    weight: Doubles  # how many keys each stands for


def key_sample(policy: Price, start: int, now: float, *, most: int = KEYS) -> KeySample:
    """At most `most` keys of one piece of the table, which begins at row `start`."""
    table = policy.table
    end = min(start + PIECE, table.high)
    used = start + np.flatnonzero(np.isfinite(table.due[start:end]))
    places, weight = _drawn(table.state[used, SLOW].astype(np.float64), most)
    rows = used[places].astype(np.int32)
    state = table.state[rows]
    a, b = state[:, (A, B)].astype(np.float64).T
    believed = state[:, (A, B)] if table.silent is None else table.silent[rows]
    quiet_a, quiet_b = believed.astype(np.float64).T
    mu = learning.wanted(state, now - table.times[rows, TOUCHED], age=now - policy.born).astype(np.float64)
    space = state[:, SPACE].astype(np.intp)
    return KeySample(space, np.maximum(mu, _READS_MIN), a, b, np.minimum(quiet_a / quiet_b, a / b), weight)


def joined(parts: Sequence[KeySample]) -> KeySample:
    """Several samples as one. They are of pieces and policies whose namespaces have the same numbers."""
    return KeySample(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _drawn(reads: Doubles, most: int) -> tuple[NDArray[np.intp], Doubles]:
    """Places, and how many each stands for: a systematic sample, which draws the heaviest for certain."""
    number = len(reads)
    if number <= most:
        return np.arange(number), np.ones(number)
    chance = reads / max(float(reads.sum()), _READS_MIN) + 1.0 / number
    ends = np.cumsum(chance)
    points = (np.arange(most) + 0.5) * (ends[-1] / most)
    places, drawn = np.unique(np.searchsorted(ends, points), return_counts=True)
    places = np.minimum(places, number - 1)
    return places, drawn * (ends[-1] / most) / chance[places]
