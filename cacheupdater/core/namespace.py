"""A namespace as the core sees it: which keys, from which source, how often.

Built once by the service from the configuration; lives as long as the process. How its rows are loaded,
encoded and written is the pipeline's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.budget import Bucket, Source
    from cacheupdater.core.keyspace import Pattern


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """Compared by identity: one object per name."""

    name: str
    pattern: Pattern
    source: Source
    every: float = 5.0  # seconds: the policy `fixed` holds a key's seat for so long
    missing_ttl: float = 30.0  # seconds that a row known to be absent declines misses
    max_backlog: int = 10_000  # due keys; beyond it the oldest touch is dropped first
    quota: Bucket | None = None  # rows of this namespace; None: only the source's budget binds
