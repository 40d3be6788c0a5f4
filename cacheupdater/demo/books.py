"""The books: the reads and the cost of each application, in the last seconds and in each part of the run.

The conductor keeps them. The warm-up is not a part: its counts are dropped. Times are arguments.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater.demo import plan
from cacheupdater.demo.lanes import LANES, SERVED
from cacheupdater.demo.ledger import Account

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cacheupdater.demo.lanes import Lane
    from cacheupdater.demo.updater import Cost

Accounts: TypeAlias = "dict[Lane, Account]"


def blank() -> Accounts:
    return {lane: Account() for lane in LANES}


@dataclass(slots=True)
class Part:
    """Some seconds of the run, and what happened in them."""

    accounts: Accounts = field(default_factory=blank)
    seconds: float = 0.0
    allowed: float = 0.0  # rows that the budgets allowed each application

    def merge(self, other: Part) -> None:
        """Adds the reads, costs and seconds of another part."""
        for lane in LANES:
            self.accounts[lane].merge(other.accounts[lane])
        self.seconds += other.seconds
        self.allowed += other.allowed


class Books:
    """Reads and costs come in; at the end of each second they go to the present part."""

    def __init__(self, costs: dict[str, Cost], now: float) -> None:
        self._costs = costs
        self._since = now
        self._part = Part()  # the warm-up
        self._slice = blank()
        self._recent: deque[Part] = deque(maxlen=round(plan.WINDOW_S / plan.REFRESH_S))
        self._budget = 0.0  # at the end of the last second

    def begin(self) -> Part:
        """Begins the next part, which is filled from now on."""
        self._part = Part()
        return self._part

    def slice(self, lane: Lane) -> Account:
        """The account in which reads are counted now."""
        return self._slice[lane]

    def turn_over(self, costs: dict[str, Cost], now: float, *, budget: float) -> None:
        """Ends the present second. If the budget changed in it, or just before, the larger budget counts."""
        for lane in SERVED:
            spent = costs[lane.name].minus(self._costs[lane.name])
            self._slice[lane].charge(spent.rows, spent.statements)
        seconds = now - self._since
        ended = Part(self._slice, seconds, max(budget, self._budget) * seconds)
        self._part.merge(ended)
        self._recent.append(ended)
        self._costs, self._slice, self._since, self._budget = costs, blank(), now, budget

    def recent(self) -> Part:
        """The last few seconds."""
        return together(self._recent)


def together(parts: Iterable[Part]) -> Part:
    """All of them as one."""
    whole = Part()
    for part in parts:
        whole.merge(part)
    return whole
