"""A namespace as the core sees it: which keys, from which source, how often or on what terms.

Built once by the service from the configuration; lives as long as the process. How its rows are loaded,
encoded and written is the pipeline's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from cacheupdater.core.absent_bucket import AbsentBucket
from cacheupdater.core.budget import Cost
from cacheupdater.core.loads import Loads
from cacheupdater.core.priorities import Priority
from cacheupdater.core.removing import removing

if TYPE_CHECKING:
    from cacheupdater.core.bucket import Bucket
    from cacheupdater.core.budget import Source
    from cacheupdater.core.pace import Pace
    from cacheupdater.core.turns import Turns
    from cacheupdater_client.protocol.patterns import Pattern


class Terms(NamedTuple):
    """The terms on which the policy `price` weighs this namespace's loads."""

    worth: float = 1.0  # a stale read here counts so many times
    max_age: float | None = None  # seconds: no value that is still read gets older, while the budget allows
    stamp: Literal["", "version", "age"] = ""  # what a row says about its last change


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """Compared by identity: one object per name."""

    name: str
    pattern: Pattern
    source: Source
    every: float = 5.0  # seconds: the policy `fixed` holds a key's seat for so long
    ttl: float = 300.0  # seconds that a written value lives
    fail_safe: float = 0.0  # seconds beyond the ttl that a read value lives while its source fails; 0: none
    missing_ttl: float = 30.0  # seconds that a row known to be absent declines misses
    missing_share: float = 0.1  # of its quota, or of its source: what absent rows of unseen keys may cost
    max_backlog: int = 10_000  # due keys; beyond it the oldest touch is dropped first
    backlog_age: float = inf  # seconds that a due key may wait, where that is less than `Limits.backlog_age`
    quota: Bucket | None = None  # rows of this namespace; None: only the source's budget binds
    terms: Terms | None = None  # of the policy `price`; None: `fixed`
    priority: Priority = Priority.NORMAL
    weight: float = 1.0  # its part of the source, beside the weights of the others of its priority
    cost: Cost = field(init=False)
    absent_bucket: AbsentBucket = field(init=False)
    removing: Pace = field(init=False)
    loads: Loads = field(init=False, default_factory=Loads)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", Cost(self.source, self.quota))
        absent_bucket = AbsentBucket(self.source, self.quota, self.cost, share=self.missing_share)
        object.__setattr__(self, "absent_bucket", absent_bucket)
        object.__setattr__(self, "removing", removing(self.source, self.quota, self.cost))

    @property
    def turns(self) -> Turns:
        """The turns that it shares with the others of its priority."""
        return self.source.priorities.turns[self.priority]
