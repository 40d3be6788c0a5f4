"""The books: the reads of both pages' shoppers, second by second and in each part of the run.

The conductor keeps them. Counts before the first part, the warm-up, are dropped. Times are arguments.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.demo import plan
from cacheupdater.demo.lanes import Lane
from cacheupdater.demo.ledger import AGES_KEPT, Account, reached

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cacheupdater.demo.ledger import Read, Verdict

QUIET = Lane("quiet", "told nothing", "changes are not announced; read keys are refreshed every second")
TOLD = Lane("told", "told of changes", "the same, and the back office invalidates after each commit")
PAGES = (QUIET, TOLD)
SECONDS_KEPT = 3600  # the longest run that `cli.demo` accepts


class Second(NamedTuple):
    """One second, as the end of the report draws it."""

    part: int  # its number
    stale: dict[Lane, float]  # share of reads
    age: dict[Lane, float]  # seconds that 99 % of the stale reads did not exceed


@dataclass(slots=True)
class Part:
    """Some seconds of the run, and what happened in them."""

    title: str = ""
    accounts: dict[Lane, Account] = field(default_factory=lambda: {page: Account() for page in PAGES})
    took: deque[float] = field(default_factory=lambda: deque(maxlen=AGES_KEPT))  # seconds of reads
    refreshes: int = 0  # by the updaters, however they ended
    seconds: float = 0.0

    def add(self, page: Lane, read: Read, verdict: Verdict) -> None:
        self.accounts[page].add(read, verdict)
        self.took.append(read.took)

    def merge(self, other: Part) -> None:
        """Adds the reads, refreshes and seconds of another part."""
        for page in PAGES:
            self.accounts[page].merge(other.accounts[page])
        self.took.extend(other.took)
        self.refreshes += other.refreshes
        self.seconds += other.seconds

    def slowness(self, share: float) -> float:
        """The seconds that `share` of the reads did not exceed; 0 without any."""
        return reached(self.took, share)


class Books:
    """Reads and refreshes come in; at the end of each second they go to the present part."""

    def __init__(self, now: float) -> None:
        self.parts: list[Part] = []
        self.seconds: deque[Second] = deque(maxlen=SECONDS_KEPT)
        self.present = Part()
        """The part in which reads and refreshes are counted now."""
        self._since = now
        self._recent: deque[Part] = deque(maxlen=round(plan.WINDOW_S / plan.REFRESH_S))

    def begin(self, title: str) -> None:
        """Begins the next part, which is filled from now on."""
        self.parts.append(Part(title))

    def turn_over(self, now: float) -> None:
        """Ends the present second."""
        ended, self.present = self.present, Part()
        ended.seconds, self._since = now - self._since, now
        self._recent.append(ended)
        if self.parts:
            self.parts[-1].merge(ended)
            stale = {page: ended.accounts[page].stale_share for page in PAGES}
            age = {page: ended.accounts[page].age(0.99) for page in PAGES}
            self.seconds.append(Second(len(self.parts), stale, age))

    def recent(self) -> Part:
        """The last few seconds."""
        return together(self._recent)


def together(parts: Iterable[Part]) -> Part:
    """All of them as one."""
    whole = Part()
    for part in parts:
        whole.merge(part)
    return whole
