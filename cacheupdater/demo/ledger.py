"""The ledger of commits by version, and an account of each application's reads, judged by the ledger.

The back office's thread notes commits and the conductor's thread judges reads; nothing else touches them. A read is stale if
a higher version had been committed before the read began. Its age is the time since that commit: how long the value had been
out of date. Times are arguments.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

AGES_KEPT = 300_000  # stale reads of one lane: an hour at the default load; the oldest are dropped first


class Read(NamedTuple):
    """One read as the application reports it."""

    product: int  # that the reader asked for
    found: int  # the product that the value names
    version: int
    began: float
    waited: bool  # nothing was in the cache, so the reader went to the database and waited
    took: float = 0.0  # seconds until the reader had it


class Verdict(NamedTuple):
    """The judgement on one read."""

    wrong: bool
    age: float | None  # seconds out of date; None if it was fresh


class Ledger:
    """The commits of all products, by version."""

    def __init__(self) -> None:
        self._commits: dict[int, list[float]] = {}  # of version 2, 3, ...: all products begin with version 1

    def commit(self, product: int, version: int, at: float) -> None:
        """Notes a commit, version by version, as the back office commits."""
        commits = self._commits.setdefault(product, [])
        assert version == len(commits) + 2, "a version without its predecessor"
        commits.append(at)

    def judge(self, read: Read) -> Verdict:
        """Compares a read with the commits."""
        commits = self._commits.get(read.product, ())
        successor = read.version - 1  # the index of the version that replaced the one read
        outdated = successor < len(commits) and commits[successor] <= read.began
        return Verdict(read.found != read.product, read.began - commits[successor] if outdated else None)


@dataclass(slots=True)
class Account:
    """The reads of one application and their cost for the database, since the warm-up or within a window."""

    reads: int = 0
    waited: int = 0
    wrong: int = 0
    ages: deque[float] = field(default_factory=lambda: deque(maxlen=AGES_KEPT))  # of stale reads
    stale: int = 0
    rows: int = 0  # by the application itself and by the updater for it
    statements: int = 0

    def add(self, read: Read, verdict: Verdict) -> None:
        """Counts one read. A reader that waits costs one statement of one row."""
        self.reads += 1
        self.wrong += verdict.wrong
        if read.waited:
            self.waited += 1
            self.rows += 1
            self.statements += 1
        if verdict.age is not None:
            self.stale += 1
            self.ages.append(verdict.age)

    def charge(self, rows: int, statements: int) -> None:
        """Counts what the updater loaded for this application."""
        self.rows += rows
        self.statements += statements

    def merge(self, other: Account) -> None:
        """Adds the reads and costs of another account."""
        self.reads += other.reads
        self.waited += other.waited
        self.wrong += other.wrong
        self.stale += other.stale
        self.ages.extend(other.ages)
        self.charge(other.rows, other.statements)

    @property
    def updater_rows(self) -> int:
        """Rows loaded by the updater. The others were loaded by readers that waited, one each."""
        return self.rows - self.waited

    @property
    def waited_share(self) -> float:
        return self.waited / self.reads if self.reads else 0.0

    @property
    def stale_share(self) -> float:
        return self.stale / self.reads if self.reads else 0.0

    def age(self, share: float) -> float:
        """The age, in seconds, that `share` of the stale reads did not exceed; 0 without any."""
        return reached(self.ages, share)


def reached(values: Iterable[float], share: float) -> float:
    """The value that `share` of them did not exceed; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
