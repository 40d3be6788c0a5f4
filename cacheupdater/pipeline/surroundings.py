"""What all partitions of a process share: the queue, the loaders and writers, and whoever watches over all of them.

The service makes one, the supervisor hands it to each partition, and it lives as long as the process. It decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from cacheupdater.core.keyspace import Keyspace
from cacheupdater.pipeline.foreign import Foreign
from cacheupdater.pipeline.judging import Judging
from cacheupdater.pipeline.recent import Recent
from cacheupdater.pipeline.sieve import Sieve
from cacheupdater.pipeline.unremoved import Unremoved
from cacheupdater.pipeline.unsound import Unsound
from cacheupdater.pipeline.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.naming import LogKeys
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.pipeline.recipe import Recipe
    from cacheupdater.ports import Observer, Queue, Writer


@dataclass(frozen=True)
class Surroundings:
    """What all partitions of a process share."""

    queue: Queue
    recipes: Mapping[Namespace, Recipe]
    writer: Writer  # for invalidations, whatever the namespace
    observer: Observer
    random: Callable[[], float]
    notices: Notices
    recent: Recent = field(default_factory=Recent)
    log_keys: LogKeys = "hash"
    judged: bool = False  # whether the first values of a namespace decide whether it may be written
    wall: Callable[[], float] | None = None  # seconds since 1970; without it no hint is too old
    listens: Sequence[str] = ()  # where clients may come, for the line that none does

    @cached_property
    def vitals(self) -> Vitals:
        """Signs that are seen over all partitions."""
        return Vitals(
            self.keyspace,
            observer=self.observer,
            notices=self.notices,
            random=self.random,
            log_keys=self.log_keys,
            listens=self.listens,
        )

    @cached_property
    def sieve(self) -> Sieve | None:
        """What comes too late."""
        return (
            Sieve(self.keyspace, self.wall, observer=self.observer, notices=self.notices)
            if self.wall
            else None
        )

    @cached_property
    def keyspace(self) -> Keyspace[Namespace]:
        """Whose keys they are, for what is counted by namespace."""
        return Keyspace([(each.pattern, each) for each in self.recipes])

    @cached_property
    def unremoved(self) -> Unremoved:
        """Changed keys that Redis did not let go."""
        return Unremoved(self.notices)

    @cached_property
    def foreign(self) -> Foreign:
        """Keys that hold what we did not write."""
        return Foreign(self.notices)

    @cached_property
    def unsound(self) -> Unsound:
        """What stands in place of floors."""
        return Unsound(self.observer)

    @cached_property
    def judging(self) -> Judging:
        """Of the namespaces in which foreign values are kept."""
        kept = [each for each, recipe in self.recipes.items() if self.judged and not recipe.replace]
        return Judging(kept, self.notices)
