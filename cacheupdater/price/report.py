"""What people see of the policy `price`: per source and namespace, what is spent, what it buys, what it cannot.

`price.shell.freshness` builds a report from the markets and a sample of keys, for metrics and for the admin page behind
`cacheupdater freshness`. A report lives until the next one. "Lately" is the last minute as the meter remembers it. "Measured"
is what the sampler has drawn in ten minutes. Nothing here changes what it looks at.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import exp
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cacheupdater.price.index import worth_of_known
from cacheupdater.price.meter import AGED, CHANGES, LOADS, MEMORY, READS, STALE
from cacheupdater.price.outlook import Keys, earned, outlook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cacheupdater.price.index import Doubles
    from cacheupdater.price.key_sample import KeySample
    from cacheupdater.price.market import Market
    from cacheupdater.price.outlook import Outlook
    from cacheupdater.price.sampler import Measured
    from cacheupdater.price.spaces import Spaces

MEASURED_OVER = 600.0
"""Seconds of draws behind a measured share."""

TIMES = (0.5, 1.0, 2.0)
"""So many times the budget: what would that give?"""

GAINS = (0.0, 0.5, 1.0, 2.0, 5.0)
"""So many times the least gain: what would that give?"""

_USUAL_GAIN = 0.02  # instead of the least gain, if none is configured


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a namespace, or of a source as a whole. Shares are between 0 and 1."""

    name: str
    reads: float  # per second, lately
    stale_estimated: float  # share of reads, lately
    stale_measured: float | None  # share of reads; None: nothing was drawn yet
    stale_measured_low: float | None  # between this
    stale_measured_high: float | None  # and this, with 95 % confidence
    draws: int
    useful: float | None  # share of loads for touches that found a change, lately; None: there were none
    over_age: float  # reads of values older than max_age, per second, lately
    learned: int  # keys
    starved: int  # keys that are not worth this price even when they are known to be stale
    starved_reads: float  # their share of the reads


class Gain(NamedTuple):
    """What a least gain would give, in the long run."""

    least_gain: float  # stale reads that a row must prevent
    spent: float  # rows or milliseconds per second
    stale: float  # share of reads


@dataclass(frozen=True, slots=True)
class SourceReport:
    """One source and its namespaces."""

    unit: Literal["rows", "ms"]
    budget: float  # of that, per second
    spent: float  # per second, lately
    price: float  # stale reads that the next row (or millisecond) would prevent
    target: float | None  # share of reads that shall be fresh
    least_gain: float  # stale reads that a row must prevent
    unneeded: float  # of the budget, per second: what was not worth spending, lately
    whole: Figures
    namespaces: tuple[Figures, ...]
    outlook: tuple[Outlook, ...]  # half the budget, the budget, twice the budget, in the long run
    gains: tuple[Gain, ...]  # other least gains, at the budget

    @property
    def used(self) -> float:
        """Share of the budget."""
        return self.spent / self.budget

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            **asdict(self.whole),
            "unit": self.unit,
            "budget": self.budget,
            "spent": self.spent,
            "used": self.used,
            "price": self.price,
            "target": self.target,
            "least_gain": self.least_gain,
            "unneeded": self.unneeded / self.budget,
            "namespaces": [asdict(each) for each in self.namespaces],
            "outlook": [each._asdict() for each in self.outlook],
            "gains": [each._asdict() for each in self.gains],
        }


class Ahead(NamedTuple):
    """The long run, under other budgets and other least gains."""

    outlooks: Sequence[Outlook] = ()
    gains: Sequence[Gain] = ()


class Columns(NamedTuple):
    """The sampled keys of one source."""

    within: NDArray[np.intp]  # the namespace's number in the market
    keys: Keys
    starved: NDArray[np.bool_]


def columns_of(market: Market, spaces: Spaces, sample: KeySample) -> Columns:
    """The keys of this source, out of a sample of all our policies. `spaces` gives the numbers of their namespaces."""
    mine = spaces.market[sample.space] == spaces.markets.index(market)
    space, mu, a, b, silent, weight = (column[mine] for column in sample)
    weight = weight * (
        market.tracked / max(float(weight.sum()), 1.0)
    )  # the drawn number of keys is an estimate, `tracked` is exact
    cost, worth = spaces.cost[space], spaces.worth[space]
    keys = Keys(mu, silent, a / b - silent, cost, worth, spaces.max_age[space], weight)
    starved = worth_of_known(mu, a, b) * worth / cost < market.price
    return Columns(spaces.within[space], keys, starved)


def look_ahead(market: Market, keys: Keys, *, times: float = 1.0, least: float | None = None) -> Outlook:
    """What so many times the budget, or another least gain, would give this source in the long run."""
    least = market.least if least is None else least
    budget = market.source.bucket.rate * times
    found = outlook(keys, earned(keys, budget) if least else budget, floor=market.floor_of(least))
    return found._replace(budget=budget)


def gains_of(market: Market) -> Sequence[float]:
    """The least gains for which a report says what they would give."""
    return [times * (market.least or _USUAL_GAIN) for times in GAINS]


def describe(
    market: Market, columns: Columns | None, ahead: Ahead, *, now: float, since: float
) -> SourceReport:
    """Without columns no partition is ours. `since` is when counting began."""
    bucket, number = market.source.bucket, len(market.spaces)
    drawn = market.sampler.measured_by_space(now - MEASURED_OVER)
    keys = _per_space(columns, number)
    seconds = MEMORY * (1.0 - exp(-max(now - since, 1.0) / MEMORY))
    each = tuple(
        _figures(market, space.name, n, measured=drawn.get(n), keys=keys[:, n], seconds=seconds)
        for space, n in market.spaces.items()
    )
    total = keys.sum(axis=1)
    measured = market.sampler.measured(now - MEASURED_OVER)
    whole = _figures(market, market.source.name, None, measured=measured, keys=total, seconds=seconds)
    return SourceReport(
        unit="ms" if market.source.timed else "rows",
        budget=bucket.rate,
        spent=market.spent_lately(now),
        price=market.price,
        target=market.target,
        least_gain=market.least,
        unneeded=market.unneeded,
        whole=whole,
        namespaces=each,
        outlook=tuple(ahead.outlooks),
        gains=tuple(ahead.gains),
    )


def _per_space(columns: Columns | None, number: int) -> Doubles:
    """By namespace: keys, starved keys, reads per second, those of starved keys."""
    if columns is None:
        return np.zeros((4, number))
    within, keys, starved = columns
    reads = keys.weight * keys.mu
    rows = (keys.weight, keys.weight * starved, reads, reads * starved)
    return np.array([np.bincount(within, weights=row, minlength=number) for row in rows])


def _figures(
    market: Market, name: str, space: int | None, *, measured: Measured | None, keys: Doubles, seconds: float
) -> Figures:
    meter = market.meter
    recent = meter.recent.sum(axis=1) if space is None else meter.recent[:, space]
    known, starved, reads, starved_reads = keys.tolist()
    return Figures(
        name=name,
        reads=float(recent[READS]) / seconds,
        stale_estimated=meter.share(STALE, READS, space),
        stale_measured=measured.share if measured else None,
        stale_measured_low=measured.low if measured else None,
        stale_measured_high=measured.high if measured else None,
        draws=measured.draws if measured else 0,
        useful=meter.share(CHANGES, LOADS, space) if recent[LOADS] > 0.0 else None,
        over_age=float(recent[AGED]) / seconds,
        learned=market.tracked if space is None else round(known),
        starved=round(starved),
        starved_reads=starved_reads / reads if reads > 0.0 else 0.0,
    )


def plain(reports: Sequence[SourceReport]) -> dict[str, object]:
    """All of it, for JSON."""
    return {"version": 1, "sources": [each.plain() for each in reports]}
