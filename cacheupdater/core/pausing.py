"""Namespaces that an operator has paused: their touches and misses are dropped, and their changes only remove.

The service learns from Redis which namespaces are paused, and the partition hands that to its engine. From then on nothing of
such a namespace is loaded. A change removes its value, unless the application has just set it (`drops`). What waited is
dropped too, so that its packs end. Refreshes that run end as usual. The policy hears of no read meanwhile. Lives as long as its
engine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Policy

BY_MOST = 100  # characters of the name of whoever has paused; a longer name is cut


class Pause(NamedTuple):
    """Who has paused a namespace, and when."""

    by: str
    since: float | None  # seconds since 1970; None: the entry does not say

    def spelled(self) -> bytes:
        """The entry in Redis."""
        return json.dumps({"by": self.by, "since": self.since}).encode()


def pause_of(entry: bytes) -> Pause:
    """The pause of this entry in Redis. An entry that nobody of us has written pauses too, for somebody meant it."""
    try:
        said = json.loads(entry)
        by, since = str(said["by"]), float(said["since"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return Pause("somebody", None)
    return Pause(by[:BY_MOST], since if 0.0 <= since < 1e12 else None)


class Pausing:
    """The paused namespaces of one engine."""

    def __init__(self, keyspace: Keyspace[Namespace], dedup: Dedup, *, policy: Policy, tally: Tally) -> None:
        self.namespaces: Collection[Namespace] = frozenset()
        self._keyspace = keyspace
        self._schedule = dedup.schedule
        self._policy = policy
        self._tally = tally

    def follow(self, namespaces: Collection[Namespace], now: float) -> None:
        """These namespaces are paused from now on, and no others."""
        self.namespaces = frozenset(namespaces)
        self._schedule.pause(self.namespaces)
        self._policy.pause(self.namespaces, now)

    def without_paused(self, hints: Hints) -> Hints:
        """A pack without the touches and misses of paused namespaces, which are dropped with a count."""
        if hints.kind is Kind.CHANGE:
            return hints
        for namespace, keys in self._keyspace.resolve_many(hints.keys)[0].items():
            if namespace in self.namespaces:
                hints, dropped = hints.without(frozenset(keys))
                self._tally.add("dropped", dropped, namespace.name, reason="paused")
        return hints
