"""What part of a source's budget each updater of a fleet should have.

Each owner has a price of its own: the stale reads that its next row would prevent. Where the price is higher, a row does
more. So rows move from low prices to high ones until the prices are equal, and equal prices are the optimum of the whole
fleet. Every owner works out all shares from what all report, and asks for its own. Owners may see different moments. That
costs a little quality and never the budget, for one place decides what is granted (`ports.Fleet`).

`price.shell.sharing` calls it at each exchange. Pure, and without memory: all state is in the owners' entries.
"""

from __future__ import annotations

from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

GAIN = 0.1
"""At each exchange a share moves by this power of its price. Prices follow their shares within a minute or two. With 0.5 the
shares ran ahead of the prices and swung by a factor of two. With 0.02 they took 20 minutes. Measured in the tests' economy."""

STEP_MAX = 2.0
"""A share doubles or halves at most, however wild a price is."""

LEAST = 0.01
"""Least part of an equal share: an owner that has almost nothing must still notice that its rows would do more."""

EXCHANGE_EVERY = 5.0
"""Seconds: others wait at most so long for room. Prices take minutes, and one short script is nothing to Redis."""

ASK_AGAIN = 1.0
"""Seconds, for an owner that has less than it wants, or that was not answered."""

ASK_NEXT = 0.2
"""Seconds, for an owner that is among the first that wait: what becomes free shall not lie idle."""

NEXT = 3
"""How many of the waiting owners count as the first."""

WAITING = 3.0
"""Seconds without a call after which nothing is kept free any more for an owner that waits: it has died."""

TURN_LEAST = 1.0
"""Seconds that a turn lasts where not all can have a share at once."""

TURN_ROWS = 5.0
"""Rows that a turn brings at the least: the first must be saved up, and the last is lost if the turn ends before."""

CLAIM_LIFE = 15.0
"""Seconds that a claim holds in Redis: two exchanges may fail. The share of a dead owner lies idle for as long."""

CLAIM_MARGIN = 1.0
"""Seconds by which an owner stops earlier than its claim: two clocks may drift apart, and one may step a little."""

YOUTH = CLAIM_LIFE
"""For so many seconds after the fleet's record has appeared in Redis, no owner gets more than it holds. The record may have
been lost while owners live. One of them may be cut off, so that it cannot tell again what it holds: it spends that until its
claim ends. A new fleet must wait as long, for an owner cannot tell a record that is new from one that was lost."""


class Owner(NamedTuple):
    """What an updater tells the others about one source."""

    price: float  # 0: it knows none, for nothing of this source is priced
    aim: float  # rows (or milliseconds) per second that it wanted last; 0: it has just come


def aim(mine: Owner, others: Sequence[Owner], budget: float, *, least: float = 0.0) -> float:
    """The rate to want next. All aims together are the budget, if all owners see the same.

    `least` is a rate below which a share is of no use.
    """
    owners = [mine, *others]
    equal = budget / len(owners)
    if any(not _sound(each.price) for each in owners):
        return equal
    floor = min(equal, max(LEAST * equal, least))
    usual = median(each.price for each in owners)
    raw = [min(_base(each, equal), budget) * _step(each.price / usual) for each in owners]
    scaled = [max(share * budget / sum(raw), floor) for share in raw]
    above = sum(scaled) - floor * len(owners)
    if above <= 0.0:
        return equal
    return floor + (scaled[0] - floor) * (budget - floor * len(owners)) / above


def _sound(price: float) -> bool:
    return isfinite(price) and price > 0.0


def _base(owner: Owner, equal: float) -> float:
    return owner.aim if isfinite(owner.aim) and owner.aim > 0.0 else equal


def _step(ratio: float) -> float:
    return float(min(max(ratio**GAIN, 1.0 / STEP_MAX), STEP_MAX))
