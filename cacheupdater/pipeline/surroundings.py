"""What all partitions of a process share: the queue, the loaders and writers, and the parts that watch all of them.

The service makes one `Surroundings`, which lives as long as the process, and builds each partition with it. It decides
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.redis_clock import RedisClock
from cacheupdater.pipeline.foreign import Foreign
from cacheupdater.pipeline.judging import Judging
from cacheupdater.pipeline.paused import Paused
from cacheupdater.pipeline.quarantining import Quarantining
from cacheupdater.pipeline.recent import Recent
from cacheupdater.pipeline.sieve import Sieve
from cacheupdater.pipeline.unremoved import Unremoved
from cacheupdater.pipeline.unsound import Unsound
from cacheupdater.pipeline.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

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
    writer: Writer  # for invalidations of all namespaces
    observer: Observer
    random: Callable[[], float]
    notices: Notices
    recent: Recent = field(default_factory=Recent)
    log_keys: LogKeys = "hash"
    redis_clock: RedisClock = field(default_factory=RedisClock)  # by which fills are dated
    judged: bool = False  # whether the first values of a namespace decide if it may be written
    wall: Callable[[], float] | None = None  # seconds since 1970; without it no hint is too old
    listens: Sequence[str] = ()  # the addresses for clients, named in the log when no client connects

    def under(self, recipes: Mapping[Namespace, Recipe], unchanged: Collection[str]) -> Surroundings:
        """The surroundings of the next partitions, under other namespaces. What was learned of senders and of Redis stays.

        The namespaces with these names are `unchanged`, so their verdicts stay too.
        """
        later = replace(self, recipes=recipes)
        later.judging.follow(self.judging, [each for each in recipes if each.name in unchanged])
        self.vitals.follow(later.keyspace)
        if self.sieve:
            self.sieve.follow(later.keyspace)
        self.paused.under(recipes)
        # as if `later` had made them itself
        vars(later).update(
            vitals=self.vitals, sieve=self.sieve, paused=self.paused, quarantining=self.quarantining
        )
        return later

    @cached_property
    def vitals(self) -> Vitals:
        """Signs that only all partitions together show."""
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
        """Drops reads that come too late; None without a wall clock."""
        return (
            Sieve(self.keyspace, self.wall, observer=self.observer, notices=self.notices)
            if self.wall
            else None
        )

    @cached_property
    def keyspace(self) -> Keyspace[Namespace]:
        """Finds the namespace of a key, for figures that are counted by namespace."""
        return Keyspace([(each.pattern, each) for each in self.recipes])

    @cached_property
    def paused(self) -> Paused:
        """The namespaces that an operator has paused."""
        return Paused(self.recipes, observer=self.observer, notices=self.notices)

    @cached_property
    def unremoved(self) -> Unremoved:
        """Changed keys that Redis refused to remove."""
        return Unremoved(self.notices, self.log_keys)

    @cached_property
    def quarantining(self) -> Quarantining:
        """Keys that are in quarantine."""
        return Quarantining(self.notices)

    @cached_property
    def foreign(self) -> Foreign:
        """Keys whose values are foreign."""
        return Foreign(self.notices)

    @cached_property
    def unsound(self) -> Unsound:
        """Entries that stand in the place of floors."""
        return Unsound(self.observer)

    @cached_property
    def judging(self) -> Judging:
        """Judges the namespaces in which foreign values are kept."""
        kept = [each for each, recipe in self.recipes.items() if self.judged and not recipe.replace]
        return Judging(kept, self.notices)
