"""How stale the reads of a source really are: measured, not modelled.

A few of all reads are drawn at random, and their keys are refreshed at once, whatever the policy thinks. If the write finds
other bytes, the reader had a stale value. The draw knows nothing of the key, so the share is unbiased. The one exception are
first writes over values of the application, which show nothing: their draws are dropped. Each draw counts by the inverse of
its chance, for the chance follows the traffic. It costs a hundredth or two of the budget, and even those rows are refreshes.

One per `market`. The draws under way and the results that are kept are bounded.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from math import inf, log, log1p, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cacheupdater.price.index import Doubles

SHARE = 0.015
"""Part of the budget. At 200 rows a second it pays three draws a second. They measure 5 % to +-1.2 within seven minutes."""

_KEPT = 20_000  # results: an hour at 5 a second; beyond, the oldest go
_UNDER_WAY = 1_000  # draws whose load has not ended; those of failed loads are forgotten here
_DRAWN = 200  # per call; in a flood, or if counts are a mistake, each draw stands for more reads
_MEMORY = 10.0  # seconds over which the rate of reads is averaged
_Z = 1.96  # 95 % of a normal distribution


class Measured(NamedTuple):
    """A share of stale reads, and the limits between which it lies with 95 % confidence."""

    share: float
    low: float
    high: float
    draws: int


class _Result(NamedTuple):
    at: float
    space: int
    weight: float
    stale: bool


class Sampler:
    """Draws reads, and remembers what became of them."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._results: deque[_Result] = deque(maxlen=_KEPT)
        self._under_way: dict[bytes, float] = {}
        self._reads = 0.0
        self._rate = 0.0  # reads per second
        self._chance = 0.0
        self._skip = inf  # reads until the next draw

    def advance(self, rows: float, dt: float) -> None:
        """`dt` seconds have passed in which `rows` a second could be spent."""
        self._rate += min(1.0, dt / _MEMORY) * (self._reads / dt - self._rate)
        self._reads = 0.0
        chance = min(1.0, SHARE * rows / self._rate) if self._rate > 0.0 else 0.0
        self._pace(chance)

    def draw(self, counts: Doubles) -> list[int]:
        """Which of these reads are drawn: places in `counts`. All reads are equally likely, so a place may come twice."""
        total = float(counts.sum())
        self._reads += total
        if total * self._chance > _DRAWN:
            self._pace(_DRAWN / total)
        if self._skip >= total:
            self._skip -= total
            return []
        drawn, ends = [], np.cumsum(counts)
        while self._skip < total:
            drawn.append(min(int(np.searchsorted(ends, self._skip, side="right")), len(counts) - 1))
            self._skip += max(1.0, self._gap(self._chance))
        self._skip -= total
        return drawn

    def begin(self, key: bytes) -> None:
        """A load of this key will tell what its reader had. It also tells for earlier readers that wait for the same load."""
        if self._chance > 0.0:
            weight = self._under_way.pop(key, 0.0)
            if len(self._under_way) >= _UNDER_WAY:
                del self._under_way[next(iter(self._under_way))]
            self._under_way[key] = weight + 1.0 / self._chance

    def known(self, space: int, now: float, *, stale: bool) -> None:
        """It is known without a load what this reader had."""
        if self._chance > 0.0:
            self._results.append(_Result(now, space, 1.0 / self._chance, stale))

    def loaded(self, key: bytes, space: int, now: float, *, stale: bool) -> None:
        """A load has ended. It counts if its key was drawn."""
        weight = self._under_way.pop(key, None)
        if weight is not None:
            self._results.append(_Result(now, space, weight, stale))

    def forget(self, key: bytes) -> None:
        """A load has ended that does not tell what its reader had: its write was the first over a value of the application."""
        # Other bytes may be another spelling of the same row. To count this read as stale would blame the spelling, as long as most
        # values are not ours yet. To count it as fresh would hide readers of old values. Equal bytes are dropped too, or only the
        # fresh reads of such values would count. Nor may the key's next load answer for it: by then the value is ours.
        self._under_way.pop(key, None)

    @property
    def waits(self) -> bool:
        """Whether any load has something to tell."""
        return bool(self._under_way)

    def measured(self, since: float, *, space: int | None = None) -> Measured | None:
        """The share of stale reads from `since` on; None without a draw. Wilson's interval, on the effective draws."""
        return _measured(each for each in self._since(since) if space is None or each.space == space)

    def measured_by_space(self, since: float) -> dict[int, Measured]:
        """The same for every namespace that was drawn, in one pass."""
        by_space: dict[int, list[_Result]] = {}
        for result in self._since(since):
            by_space.setdefault(result.space, []).append(result)
        found = {space: _measured(results) for space, results in by_space.items()}
        return {space: measured for space, measured in found.items() if measured is not None}

    def _since(self, moment: float) -> Iterator[_Result]:
        return takewhile(lambda result: result.at >= moment, reversed(self._results))

    def _pace(self, chance: float) -> None:
        """Draw with this chance from now on. What is left of the wait follows the new pace."""
        if self._chance > 0.0 and chance > 0.0:
            self._skip *= self._chance / chance
        else:
            self._skip = self._gap(chance)
        self._chance = chance

    def _gap(self, chance: float) -> float:
        """Reads from one draw to the next: geometric."""
        if chance <= 0.0:
            return inf
        if chance >= 1.0:
            return 1.0
        return 1.0 + int(log(max(self._random(), 1e-300)) / log1p(-chance))


def _measured(results: Iterable[_Result]) -> Measured | None:
    weight = square = stale = 0.0
    draws = 0
    for result in results:
        draws += 1
        weight += result.weight
        square += result.weight**2
        stale += result.weight * result.stale
    return _wilson(stale / weight, weight * weight / square, draws) if draws else None


def _wilson(share: float, effective: float, draws: int) -> Measured:
    scale = 1.0 + _Z * _Z / effective
    centre = (share + _Z * _Z / (2 * effective)) / scale
    half = _Z / scale * sqrt(share * (1 - share) / effective + _Z * _Z / (4 * effective * effective))
    return Measured(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)), draws)
