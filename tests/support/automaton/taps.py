"""Taps inside the engine, by which a story learns of drops and of the packs that were read."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from automaton.model import require
from cacheupdater.core.cursors import Cursor, OpenPack

if TYPE_CHECKING:
    from cacheupdater.core.backlog import Backlog
    from cacheupdater.core.peers import Peer
    from cacheupdater.core.schedule import Schedule
    from cacheupdater.core.shedding import Dropped
    from cacheupdater.core.unit import Demand

# queues: a full backlog drops what can wait, then touches, misses (those of unseen keys before others), changes; of each of
# these the suspects first, those that are known to be slow (9 to 12) before others (5 to 8)
GIVE_UP_ORDER = (12, 8, 3, 11, 7, 2, 4, 9, 5, 0, 10, 6, 1)


class DropLog(list):
    """The schedule's list of drops, with the time of each."""

    def __init__(self, log: list[object], schedule: Schedule) -> None:
        super().__init__()
        self.log = log
        self.schedule = schedule

    def append(self, dropped: Dropped) -> None:
        self.log.append(dropped)
        super().append(dropped)
        if dropped.reason == "backlog":
            self._check_order(dropped)

    def _check_order(self, dropped: Dropped) -> None:
        """ "oldest touch dropped first", and the coldest of the misses"""
        backlog = self.schedule._backlogs[dropped.namespace]
        theirs = _worth(dropped.demand, backlog)
        for fair in backlog.queues:
            queues = fair.waiting(dropped.demand.peer.number)
            for unit in chain.from_iterable(queues):
                mine = _worth(unit.demand, backlog)
                require(
                    mine >= theirs or not self.schedule._seats.live(unit),
                    unit,
                    "should have been dropped first",
                )


def _worth(demand: Demand, backlog: Backlog) -> tuple[int, int, float]:
    """Misses that wait for the absent bucket go first."""
    waits = demand.unseen and backlog.unseen_wait
    return -1 if waits else GIVE_UP_ORDER.index(demand.queue), demand.heat, demand.since


class LoggedCursor(Cursor):
    """A cursor that records when a pack was read."""

    def __init__(self, offset: int, log: list[object]) -> None:
        super().__init__(offset)
        self.log = log

    def read(self, offset: int, now: float, peer: Peer) -> OpenPack:
        self.log.append(offset)
        return super().read(offset, now, peer)
