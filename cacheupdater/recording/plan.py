"""What any budget would give, computed from a recording alone.

`cacheupdater plan` calls it. The recording says how often each key was read. It says only of a sample how often keys change.
So each key gets the change rate of some sampled key that is about as popular, drawn from what the sample says about that
one. `outlook` does the rest. All of it is repeated with the sample drawn anew from itself: the scatter of the answers shows
how much the sample can tell.

Pure: randomness is an argument.
"""

from __future__ import annotations

from math import lgamma
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cacheupdater.errors import Misconfigured
from cacheupdater.price import posterior
from cacheupdater.price.outlook import Keys, Outlook, earned, outlook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from cacheupdater.price.index import Doubles
    from cacheupdater.recording.recording import Recording, Space, Watched

REPEATS = 20  # the fifth and ninety-fifth percentile are one answer from the ends
_ROWS = 5_000  # of one repeat: more would make no difference that could be seen
_STRATUM = 25  # sampled keys that are about as popular; fewer say little about a rate
_STRATA = 8
_POOLED = 10  # if fewer keys of a namespace are sampled, all sampled keys of its source stand for it
_SHAPES = (0.1, 0.2, posterior.SHAPE, 0.6, 1.0, 2.0, 4.0)
_RATE_MIN = 1e-9  # changes per second: once in thirty years is never


class Planned(NamedTuple):
    """What a budget gives: the mean of all repeats, and the limits between which 90 % of them lie."""

    mean: Outlook
    low: float
    high: float


class _Group(NamedTuple):
    """Keys of one namespace, as columns; each row stands for `weight` keys that were read as often."""

    space: Space
    reads: Doubles
    weight: Doubles
    sample: Sequence[Watched]


def plan(
    recording: Recording, source: str, budgets: Sequence[float], *, timed: bool, random: Generator
) -> list[Planned]:
    """By budget, in rows a second; or in milliseconds, if `timed`."""
    spaces = [each for each in recording.spaces if each.source == source and each.keys]
    pooled = [watched for each in spaces for watched in each.sample]
    if not pooled:
        raise Misconfigured(
            f"holds no sample of source {source}: its loads failed, or nothing was read; record again"
        )
    floor = _floor(spaces, timed=timed)
    groups = [_group(each, pooled, _ROWS // len(spaces)) for each in spaces]
    seen: list[list[Outlook]] = [[] for _ in budgets]
    for _ in range(REPEATS):
        keys = _joined([_imagined(each, recording.seconds, timed=timed, random=random) for each in groups])
        for found, budget in zip(seen, budgets, strict=True):
            found.append(_ahead(keys, budget, floor))
    return [_summed(found) for found in seen]


def _floor(spaces: Sequence[Space], *, timed: bool) -> float:
    """The price below which nothing is bought. If the budget is time, it is that of a row that takes as long as the mean."""
    least = spaces[0].least_gain
    costs = [each.milliseconds for each in spaces if each.milliseconds]
    return least * len(costs) / sum(costs) if timed and costs else least


def _ahead(keys: Keys, budget: float, floor: float) -> Outlook:
    """As the market does it: with a least gain there are no more loads than reads."""
    if not floor:
        return outlook(keys, budget)
    return outlook(keys, earned(keys, budget), floor=floor)._replace(budget=budget)


def _group(space: Space, pooled: Sequence[Watched], most: int) -> _Group:
    reads, keys = np.array(sorted(space.keys.items()), np.float64).T
    room = max(1, most // len(reads))
    rows = np.minimum(keys, room).astype(np.intp)
    sample = space.sample if len(space.sample) >= _POOLED else pooled
    return _Group(space, np.repeat(reads, rows), np.repeat(keys / rows, rows), sample)


def _imagined(group: _Group, seconds: float, *, timed: bool, random: Generator) -> Keys:
    """These keys, each with a change rate that it might have."""
    number = len(group.sample)
    chosen = [group.sample[at] for at in random.integers(number, size=number)]
    chosen.sort(key=lambda each: each.reads)
    a, b = _posteriors(chosen)
    size = max(_STRATUM, -(-number // _STRATA))
    popular = np.array([each.reads for each in chosen], np.float64)
    place = np.searchsorted(popular, group.reads, side="left")
    first = np.minimum(place // size * size, max(0, number - size))
    member = np.minimum(first + random.integers(size, size=len(place)), number - 1)
    rate = random.gamma(a[member]) / b[member]
    ones = np.ones(len(place))
    cost = group.space.milliseconds or 1.0 if timed else 1.0
    return Keys(
        mu=group.reads / seconds,
        rate=np.maximum(rate, _RATE_MIN),
        announced=np.zeros(len(place)),
        cost=ones * cost,
        worth=ones * group.space.worth,
        longest=ones * (group.space.max_age or np.inf),
        weight=group.weight,
    )


def _posteriors(sample: Sequence[Watched]) -> tuple[Doubles, Doubles]:
    """Gamma(a, b) of each sampled key's change rate; the prior is the one that makes the whole sample likeliest."""
    changes, exposure = (
        np.array(column, np.float64)
        for column in zip(*((w.changes, w.exposure) for w in sample), strict=True)
    )
    exact = np.array([each.exact for each in sample])
    a0, b0 = _prior(changes, np.maximum(exposure, 1e-3), exact)
    a, b = np.full(len(sample), a0), np.full(len(sample), b0)
    known = posterior.counted(a, b, changes, exposure)
    quiet = posterior.unchanged(a, b, exposure)
    moved = posterior.changed(a, b, exposure, prior=(a, b))
    told = [np.where(changes > 0.0, m, q) for m, q in zip(moved, quiet, strict=True)]
    first, second = (np.where(exact, k, t) for k, t in zip(known, told, strict=True))
    return first, second


def _prior(changes: Doubles, exposure: Doubles, exact: NDArray[np.bool_]) -> tuple[float, float]:
    """Searched on a grid. One bit per key cannot tell a shape, so the usual shape is a little likelier than the others.

    Ten quiet keys do not prove that nothing ever changes, so half a change is added.
    """
    scales = np.geomspace(1e-2, 1e8, 61)[:, None]
    best, found = -np.inf, (posterior.SHAPE, 1e3)
    for a in _SHAPES:
        quiet = -a * np.log1p(exposure / scales)
        bit = np.where(changes > 0.0, np.log(-np.expm1(np.minimum(quiet, -1e-300))), quiet)
        rising = np.array([lgamma(a + n) - lgamma(a) for n in changes])
        count = rising + a * np.log(scales) - (a + changes) * np.log(scales + exposure)
        likely = np.where(exact, count, bit).sum(axis=1) - 0.5 * (np.log(a / posterior.SHAPE) / 0.7) ** 2
        typical = np.minimum(-a * np.log1p(np.median(exposure) / scales[:, 0]), -1e-300)
        likely += 0.5 * (
            typical + np.log(-np.expm1(typical))
        )  # half a key that changed and half one that did not
        at = int(likely.argmax())
        if likely[at] > best:
            best, found = float(likely[at]), (a, float(scales[at, 0]))
    return found


def _joined(parts: Sequence[Keys]) -> Keys:
    return Keys(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _summed(found: Sequence[Outlook]) -> Planned:
    stale = np.array([each.stale for each in found])
    low, high = np.quantile(stale, (0.05, 0.95))
    return Planned(Outlook(*np.mean(found, axis=0).tolist()), float(low), float(high))
