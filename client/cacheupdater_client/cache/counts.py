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
    absent: int = 0  # keys whose row does not exist, known or just learned
    fills: int = 0  # values that were loaded and are in Redis
    refilled: int = 0  # keys that were too old for `fresh_within`, or could not be read
    unfilled: int = (
        0  # values that were loaded and did not land: something newer, a foreign value, or Redis failed
    )
    foreign: int = 0  # of these: Redis holds a value that the cache did not write and cannot read
    failed: int = 0  # loads that raised

    def add(self, more: Counts) -> None:
        """Those of one read that was counted apart."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(more, field.name))
