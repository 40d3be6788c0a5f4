"""The price of a row at one source: the stale reads that the next load must prevent to be worth it.

Each load is compared with this one number, whichever partition and namespace it belongs to. So the budget always buys the
loads that prevent the most. The controller moves the price until spending meets the budget: up if more is spent than comes
in or the bucket runs low, down if the bucket overflows. The bucket itself is the hard cap and needs no controller.

One per source and process, shared by the policies of all its partitions. Pure: `now` is an argument.
"""

from __future__ import annotations

from collections import deque
from math import exp, expm1, inf
from typing import TYPE_CHECKING

from cacheupdater.price.meter import MEMORY, READS, STALE, Meter
from cacheupdater.price.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.core.budget import Source
    from cacheupdater.core.namespace import Namespace

PRICE_MIN = 1e-3
"""A row that prevents less than a thousandth of a stale read is left unspent, however large the budget."""

PRICE_MAX = 1e9

_PATIENCE = 20.0  # seconds that the price takes at most to follow by a factor of e
_CALM = 2.0  # times the smoothing of spending: so long at least, or the price would chase its own tail
_LEVEL = 0.5  # of the bucket: room to save, and room to spend
_PULL = 0.5  # weight of the bucket's level in the price, beside the rate's
_LOST = 0.25  # the pull of a full bucket: what is missing beyond it and not spent now is never spent
_HASTE = 5.0  # the price falls so many times as fast for that part: as it falls, less is missing
_RUSH = 3.0  # times the budget: spending above that is an accident of the moment
_SHORT = 0.5
_SMOOTH = 1.0  # seconds at least over which spending is averaged, and at least five rows
_TRUSTED = 200  # draws after which the measured share corrects the estimated one
_CORRECTION_MAX = 3.0
_CORRECT_EVERY = 10.0  # seconds
_CORRECT_OVER = 60  # such moments: ten minutes of draws
_EARNED_OVER = 2.0  # seconds over which the rate of reads, which earns rows, is averaged
_CREDIT = 2.0  # seconds of that rate that may be saved up
_LEAST_EARNED = 1e-3  # of the rate: nothing divides by zero while nobody reads
_READS_MIN = 100  # lately; fewer say nothing about a share


class Market:
    """One source's price, meter and sampler."""

    def __init__(
        self,
        source: Source,
        namespaces: Sequence[Namespace],
        *,
        random: Callable[[], float],
        now: float,
        target: float | None = None,
        least: float = 0.0,
    ) -> None:
        """`target` is the share of fresh reads beyond which nothing is spent; `least` the stale reads that a row must
        prevent to be spent at all."""
        self.source = source
        self.spaces = {each: number for number, each in enumerate(namespaces)}
        self.meter = Meter(len(namespaces))
        self.sampler = Sampler(random)
        self.target = target
        self.least = least
        self.tracked = 0
        """Keys known in all partitions."""
        self.depths: dict[object, float] = {}
        """By partition's policy: see `depth`."""
        self.short = False
        """Whether something worth its price could not be paid since the last look."""
        self._at = now
        self._spent = source.bucket.spent
        self._rate = source.bucket.rate
        self._spending = source.bucket.rate
        self._bound = 1.0  # the price at which the budget is just spent
        self._aim = PRICE_MIN  # the price at which the target is just met
        self._unneeded = 0.0
        self._reading = 0.0  # reads per second, lately
        self._read = 0.0  # all reads, at the last look
        self._credit = 0.0  # rows that reads have earned, and nothing has spent
        self._correction = 1.0
        self._corrected = now
        self._past: deque[tuple[float, float, float]] = deque(maxlen=_CORRECT_OVER)

    @property
    def price(self) -> float:
        """Stale reads per row (or per millisecond)."""
        return max(self._bound, self._aim, self.floor)

    @price.setter
    def price(self, value: float) -> None:
        self._bound = min(max(value, PRICE_MIN), PRICE_MAX)

    @property
    def floor(self) -> float:
        """The price below which nothing is bought, however large the budget."""
        return self.floor_of(self.least)

    def floor_of(self, least: float) -> float:
        """The same for another least gain. If the budget is time, this is the gain of a row that takes as long as the mean."""
        return max(PRICE_MIN, least / self._mean_cost() if self.source.timed else least)

    @property
    def scarcity(self) -> float:
        """The price that more budget would lower; next to nothing if something else sets the price."""
        return self._bound if self._bound >= max(self._aim, self.floor) else PRICE_MIN

    @property
    def unneeded(self) -> float:
        """What was not worth spending, lately, per second. It is a mean: the budget may have been larger a moment ago."""
        return min(self._unneeded, self.source.bucket.rate)

    @property
    def depth(self) -> float:
        """What it would cost to load all keys whose worth is below the price by less than a factor of e. To spend as much,
        the price need not move by more than that factor."""
        return sum(self.depths.values())

    @property
    def spending(self) -> float:
        """Lately, per second, as the last look has found it."""
        return self._spending

    def spent_lately(self, now: float) -> float:
        """The same by now, for people: `advance` is not called while no key is known. More may have been given back than
        was spent."""
        dt = now - self._at
        return max(0.0, self._spending if dt <= 0.0 else self._smoothed(dt))

    def _smoothed(self, dt: float) -> float:
        """Spending, with what was spent in these last seconds."""
        spent = (self.source.bucket.spent - self._spent) / dt
        return self._spending + min(1.0, dt / self._smooth) * (spent - self._spending)

    @property
    def _smooth(self) -> float:
        """Seconds over which spending is averaged."""
        return max(_SMOOTH, 5.0 / self.source.bucket.rate)

    def room(self, now: float) -> float:
        """What may be promised to loads now, less those that are due already."""
        return self.source.bucket.soon(now) - self.source.due

    @property
    def credit(self) -> float:
        """Rows that readers have earned, one with each read. To load more often than anybody reads is a waste: a load with
        each read would give fresher values for fewer rows. Without a least gain there is no such limit."""
        return self._credit if self.least else inf

    def lend(self, rows: int) -> None:
        """So many of these rows are asked for."""
        self._credit -= rows

    def advance(self, now: float) -> None:
        """Follow what has been spent since the last call. Every partition calls it; once a moment is enough."""
        dt = now - self._at
        if dt <= 0.0:
            return
        self._at = now
        bucket = self.source.bucket
        if bucket.rate != self._rate:  # what was spent at another rate is no sign of haste at this one
            self._rate = bucket.rate
            self._spending = min(self._spending, bucket.rate)
        spent, smooth = (bucket.spent - self._spent) / dt, self._smooth
        self._spending = self._smoothed(dt)
        self._spent = bucket.spent
        rate, level = bucket.rate, max(0.0, self.room(now)) / bucket.burst
        earning, share = self._earned(dt)
        if self.least:
            rate, level = min(rate, earning), min(level, share)
        pressure = min(_RUSH, self._spending / rate) - 1.0 + _PULL * (_LEVEL - level)
        pressure -= _HASTE * max(0.0, -pressure - _LOST)
        if self.short:  # a bucket that binds shows no spending above its rate
            pressure = max(pressure, _SHORT)
            self.short = False
        patience = min(max(self.depth / rate, _CALM * smooth), _PATIENCE)
        moved = self._bound * exp(max(-1.0, min(1.0, pressure * dt / patience)))
        # never far below the price in force
        self._bound = min(max(moved, PRICE_MIN, max(self._aim, self.floor) / 2.0), PRICE_MAX)
        left = max(0.0, bucket.rate - spent) if self.price <= self.floor else 0.0
        self._unneeded += -expm1(-dt / MEMORY) * (left - self._unneeded)
        self.meter.advance(dt)
        self.sampler.advance(bucket.rate if not self.source.timed else bucket.rate / self._mean_cost(), dt)
        if self.target is not None:
            self._follow_target(self.target, now, dt)

    def _earned(self, dt: float) -> tuple[float, float]:
        """The rate at which readers earn rows, and how full their credit is."""
        total = float(self.meter.total[READS].sum())
        read, self._read = total - self._read, total
        self._reading += min(1.0, dt / _EARNED_OVER) * (read / dt - self._reading)
        most = max(_CREDIT * self._reading, 1.0)
        self._credit = min(self._credit + read, most)
        cost = self._mean_cost() if self.source.timed else 1.0
        earning = max(self._reading * cost, _LEAST_EARNED * self.source.bucket.rate)
        return earning, max(0.0, self._credit) / most

    def stale_share(self) -> float:
        """The estimate of the last minute, put right by what was measured."""
        return self.meter.share(STALE, READS) * self._correction

    def _follow_target(self, target: float, now: float, dt: float) -> None:
        """Raises the price while reads are fresher than they need be."""
        if now >= self._corrected + _CORRECT_EVERY:
            self._corrected = now
            self._correct(now)
        if self.meter.recent[READS].sum() < _READS_MIN:
            return
        slack = 1.0 - self.stale_share() / (1.0 - target)
        moved = self._aim * exp(max(-1.0, slack) * min(dt / _PATIENCE, 1.0))
        self._aim = min(max(moved, PRICE_MIN), PRICE_MAX)

    def _correct(self, now: float) -> None:
        """Compares draws and estimates of the same minutes; else the correction would chase its own effect."""
        total = self.meter.total
        reads, stale = float(total[READS].sum()), float(total[STALE].sum())
        self._past.append((now, reads, stale))
        since, reads_then, stale_then = self._past[0]
        measured = self.sampler.measured(since)
        if measured is not None and measured.draws >= _TRUSTED and stale > stale_then:
            ratio = measured.share * (reads - reads_then) / (stale - stale_then)
            self._correction = min(max(ratio, 1 / _CORRECTION_MAX), _CORRECTION_MAX)

    def _mean_cost(self) -> float:
        costs = [each.cost.per_row for each in self.spaces]
        return sum(costs) / len(costs)
