"""What has become of the reads of one declared value, in this process. `Cache.stats()` copies them."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """Each is a number since the process began. Adding to one is safe in threads: see `guard.fault`."""

    hits: int = 0  # keys that Redis had
    misses: int = 0  # keys that it did not have
    loads: int = 0  # calls of the loader
    waits: int = 0  # keys that somebody else was loading
    not_filled: int = 0  # keys that no updater has filled within the cache's `wait`
    absent: int = 0  # keys whose row does not exist, known or just learned
    fills: int = 0  # values that were loaded and are in Redis
    refilled: int = 0  # keys that were too old for `fresh_within`, or could not be read
    unfilled: int = (
        0  # values that were loaded and did not land: something newer, a foreign value, or Redis failed
    )
    foreign: int = 0  # of these: Redis holds a value that the cache did not write and cannot read
    failed: int = 0  # loads that raised
    served_old: int = (
        0  # of the hits: values older than `refresh_after`, which were served while a load was due
    )
    aged: int = (
        0  # reads of values whose age Redis told: those with `fresh_within`, `refresh_after` or `fail_safe`
    )
    age_ms: int = 0  # the sum of these ages

    @property
    def mean_age_s(self) -> float | None:
        """The mean age at read, in seconds. None: no age is known."""
        return self.age_ms / self.aged / 1000 if self.aged else None

    def note_age(self, age_ms: int) -> None:
        """A reader has seen a value of this age; -1: not known."""
        if age_ms >= 0:
            self.aged += 1
            self.age_ms += age_ms

    def add(self, more: Counts) -> None:
        """Those of one read that was counted apart."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(more, field.name))
