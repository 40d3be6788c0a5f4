"""When an owner may spend if its part of a burst is less than one row: each partition has moments of its own.

A row cannot be divided. If 48 partitions share a burst of 10 rows, an owner of one would have to save up a fifth of a row.
If each owner saved a whole row, 48 would be spent at once. So nobody saves anything. The wall clock is cut into turns. Turn
i belongs to partition i modulo their number. In this turn the partition's owner may spend the few rows of a *beat*; rows
that it does not spend are lost.

Why the budget R * t + B holds over all owners: the beats of all partitions follow one another, `length` apart. Each is open
for `open` seconds and worth `amount` rows. A window of t seconds meets at most (t + open) / length + 1 of them. If B is two
beats or more, that is within R * t + B already for length = amount / R. Else they lie further apart, so that the end of one
beat and the beginning of the next are at most B together: length = open + (2 * amount - B) / R.
A partition that has moved is served from the first turn that begins under its new owner.

All owners must follow the same rule. So it depends only on what all know: the budget and the number of partitions. They
must also follow the same clock: if two clocks differ by s seconds, at most R * s more rows are spent.

`price.shell.partition_shares` makes beats and hands them to `bucket.Bucket`. Pure: the difference of the clocks is an argument.
"""

from __future__ import annotations

from math import ceil, floor, gcd
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

OPEN_LEAST = 0.05
"""Seconds for which a beat is open at least: a fence token, and a row's way to its statement, take some milliseconds."""

_ROUNDING = 1e-9


class Wall:
    """How far the wall clock is ahead of the clock of `now`. `PartitionShares` keeps it correct."""

    __slots__ = ("ahead",)

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead


class Grid(NamedTuple):
    """The beats of one budget; every owner works out the same."""

    length: float  # seconds from the beginning of one turn to the next
    open: float  # seconds of it in which something may be spent
    amount: int  # rows (or milliseconds) of a beat
    every: int = 1  # turns from one beat to the next

    @property
    def rate(self) -> float:
        """What all partitions together may spend a second."""
        return self.amount / (self.every * self.length)


def grid(rate: float, burst: float) -> Grid:
    """For a budget that depends on no other: turns as short as possible."""
    amount = max(1, min(ceil(rate * OPEN_LEAST - _ROUNDING), floor(burst / 2.0)))
    even = amount / rate
    apart = max(0.0, 2.0 * amount - burst) / rate
    length = max(even, max(even / 2.0 if apart else even, OPEN_LEAST) + apart)
    return Grid(length, length - apart, amount)


def within(base: Grid, rate: float, burst: float) -> Grid:
    """For a quota, in the turns of its source: a row needs both at once."""
    amount = max(1, floor(min(rate * base.length, burst / 2.0, base.amount)))
    even = amount / (rate * base.length)
    apart = ((2.0 * amount - burst) / rate + base.open) / base.length
    return base._replace(amount=amount, every=max(1, ceil(max(even, apart) - _ROUNDING)))


class Beats:
    """The beats of one owner's partitions, in one grid."""

    __slots__ = ("_every", "_many", "_of", "_period", "_since", "_wall", "amount", "grid")

    def __init__(self, grid: Grid, since: Mapping[int, float], *, of: int, wall: Wall) -> None:
        """`since` says from when on each partition is ours."""
        self.amount = float(grid.amount)
        self.grid = grid
        self._since = since
        self._of = of
        self._wall = wall
        self._every = grid.every
        self._many = of // gcd(grid.every, of)  # beats after which the same partitions would come again
        # one turn is left out then, so that the others have theirs
        self._period = self._many * grid.every + (self._many < of)

    def at(self, now: float) -> int | None:
        """The turn of our beat that is open now; None if none is."""
        wall = now + self._wall.ahead
        turn = floor(wall / self.grid.length)
        after = turn % self._period
        if after % self._every or after >= self._many * self._every:
            return None
        since = self._since.get(turn % self._of)
        if since is None or wall - turn * self.grid.length > self.grid.open + _ROUNDING:
            return None
        return turn if self._begin(turn) >= since - _ROUNDING else None

    def follows(self, turn: int, last: int | None) -> bool:
        """Whether this is another beat than the last one. A clock that was set back a little brings no beat twice. One
        that was set back by more than a round must not hold us up for that long."""
        return last is None or turn > last or turn < last - self._of * self._every

    def missed(self, turn: int, last: int | None) -> float:
        """The least that the beats between these two have brought while nobody looked."""
        rounds = 0 if last is None else (turn - last) // (self._of * self._every)
        return max(0, rounds - 1) * self.amount

    def began(self, turn: int, at: float) -> bool:
        """Whether this turn had begun at that time."""
        return at >= self._begin(turn) - _ROUNDING

    def after(self, now: float) -> float:
        """When our next beat begins."""
        turn = floor((now + self._wall.ahead) / self.grid.length) + 1
        period, after = divmod(turn, self._period)
        beat = period * self._many + min(self._many, -(-after // self._every))
        for number in range(beat, beat + 2 * self._of + 1):
            turn = number // self._many * self._period + number % self._many * self._every
            if turn % self._of in self._since:
                break
        return self._begin(turn)

    def _begin(self, turn: int) -> float:
        return turn * self.grid.length - self._wall.ahead
