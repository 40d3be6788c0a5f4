"""New heads for hinted keys. While a namespace is behind, its misses are seated by their heat, so that the hottest go first.

The engine calls it with keys for which the automaton says ACCEPT. What these ask of the policy costs a look per key, so it
is asked only if the order matters. Lives as long as its engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.automaton import Action
from cacheupdater.core.heat import by_heat
from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Policy
    from cacheupdater.core.strangers import Strangers
    from cacheupdater.core.unit import Demand


GROUP = 4
"""What it costs to seat keys of one namespace together, where a key that is new to the policy costs 1: the group gets a unit, and
the unit a place in a backlog."""


class Seating:
    """Which seats new heads get."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        dedup: Dedup,
        *,
        policy: Policy,
        strangers: Strangers,
        tally: Tally,
        limits: Limits,
    ) -> None:
        self._keyspace = keyspace
        self._dedup = dedup
        self._policy = policy
        self._strangers = strangers
        self._tally = tally
        self._wait = limits.backlog_age
        self.effort = 0  # what all groups have cost so far

    def seat(self, keys: list[bytes], demand: Demand, now: float, *, asks: Mapping[bytes, int]) -> None:
        """These keys are due. `asks`: how many readers have asked for a key, if not one."""
        groups, unknown = self._keyspace.resolve_many(keys)
        self.effort += GROUP * len(groups)
        if unknown:
            self._tally.add("dropped", len(unknown), reason="unknown")
            self._strangers.put(unknown)
        for namespace, known in groups.items():
            self._tally.add("decisions", len(known), namespace.name, reason=Action.ACCEPT.reason)
            if demand.kind is Kind.MISS and self._dedup.schedule.is_behind(namespace):
                once = list(dict.fromkeys(known))  # a pack may name a key twice; its heat is then judged once
                readers = self._readers(once, asks, now)
                for least, alike in by_heat(once, readers).items():
                    self._dedup.accept(namespace, alike, demand._replace(asks=least), now)
            else:
                self._dedup.accept(namespace, known, demand, now)

    def _readers(self, keys: Sequence[bytes], asks: Mapping[bytes, int], now: float) -> list[int]:
        """For each key, how many readers have asked, and will while it may wait."""
        rates = self._policy.read_rates(keys, now)
        expected = [int(rate * self._wait) for rate in rates] if rates else [0] * len(keys)
        return [asks.get(key, 1) + more for key, more in zip(keys, expected, strict=True)]
