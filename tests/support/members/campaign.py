"""Plays many schedules of members, and the same schedules with a fault planted, which must be found."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from members.depot import Ledger
from members.plan import draw
from members.world import Member, play

REPLAY = "PYTHONPATH=tests/support .venv/bin/python -m members"


class CommitsOfAnyEpoch(Ledger):
    """The depot does not ask for the epoch."""

    def _owns(self, member, partition, epoch):
        return True


class RenewsWithoutEpoch(Ledger):
    """A renewal gives a member all back that was its own, and a commit asks for the owner's name alone."""

    def __init__(self, partitions, clock):
        super().__init__(partitions, clock)
        self._had = Counter()

    def renew(self, member, session):
        for partition, shelf in enumerate(self.shelves):
            if self._had[member, partition]:
                shelf.owner = member
        return super().renew(member, session)

    def claim(self, member, partitions):
        gained = super().claim(member, partitions)
        self._had.update((member, each.partition) for each in gained)
        return gained

    def _owns(self, member, partition, epoch):
        return self.shelves[partition].owner == member


class BeginsAtScan(Ledger):
    """The next owner reads from where the last one has read."""

    def claim(self, member, partitions):
        return [
            each._replace(offset=self.shelves[each.partition].scan)
            for each in super().claim(member, partitions)
        ]


class MovesBack(Ledger):
    """The depot takes each `done` that it is told."""

    def __init__(self, partitions, clock):
        super().__init__(partitions, clock)
        for shelf in self.shelves:
            shelf.advance = partial(_move_back, shelf)


def _move_back(shelf, progress):
    type(shelf).advance(shelf, progress)
    shelf.done = progress.done


class SkipsUrgent(Ledger):
    """The next owner reads touches from their `done`, and urgent packs from where the last owner has read."""

    def claim(self, member, partitions):
        return [
            each._replace(urgent=self.urgent[each.partition].scan)
            for each in super().claim(member, partitions)
        ]


class OneDone(Ledger):
    """A commit of the touches' lane moves the `done` of the urgent one too."""

    def commit(self, member, progress):
        refused = super().commit(member, progress)
        for lane, each in progress.items():
            if lane >= 0 and lane not in refused:
                before = self._place(~lane)
                self.shelf(~lane).advance(each._replace(finished=()))
                self._look(~lane, *before)
        return refused


class FinishesWhatItHasRead(Member):
    """The queue says of each lane that all is finished that was fetched."""

    def __init__(self, world, number):
        super().__init__(world, number)
        add = self.queue._commits.add  # no setting makes a queue lie
        self.queue._commits.add = lambda progress: add(
            {lane: each._replace(done=each.scan) for lane, each in progress.items()}
        )


class TrustsItsWallClock(Member):
    """The session counts by a clock that somebody sets."""

    def clock(self):
        return super().clock() + self.wall


PLANTED_FAULTS = {
    "any epoch": {"ledger": CommitsOfAnyEpoch},
    "renews without epoch": {"ledger": RenewsWithoutEpoch},
    "begins at scan": {"ledger": BeginsAtScan},
    "moves back": {"ledger": MovesBack},
    "skips urgent": {"ledger": SkipsUrgent},
    "one done": {"ledger": OneDone},
    "finishes what it has read": {"member": FinishesWhatItHasRead},
    "wall clock": {"member": TrustsItsWallClock},
}


@dataclass
class Report:
    """What a block of schedules showed."""

    schedules: int = 0
    failure: str = ""
    seconds: float = 0.0
    counts: Counter = field(default_factory=Counter)


def run(seed, planted=""):
    """The ledger of one schedule."""
    return play(seed, **PLANTED_FAULTS.get(planted, {}))


def run_block(seeds, planted=""):
    """Plays these seeds until one fails."""
    began, report = time.process_time(), Report()
    logging.disable(logging.WARNING)  # losses are what a schedule is about
    try:
        _play_all(seeds, planted, report)
    finally:
        logging.disable(logging.NOTSET)
    report.seconds = time.process_time() - began
    return report


def _play_all(seeds, planted, report):
    for seed in seeds:
        ledger = run(seed, planted)
        report.schedules += 1
        report.counts.update(each.kind for each in draw(seed).faults)
        report.counts.update(claims=len(ledger.gains), refused=ledger.refusals, packs=ledger.sent)
        if ledger.violations:
            again = f"{REPLAY} {seed}" + (f' "{planted}"' if planted else "")
            report.failure = "\n".join([*ledger.violations[:5], f"play it again: {again}"])
            return
