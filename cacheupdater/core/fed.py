"""Changes that a feed told: which of them are loaded, and which only remove their value.

An application that announces a change has removed the value itself, so its change may wait for a quiet moment. Nobody has removed
the value of a fed change: readers get the old one until we act. So a fed change never waits for long. If its key is being
read, it is loaded at once, and readers get the old value until the new one is there. Any other value is removed. Then a
statement that changes a million rows costs loads for those keys alone that somebody reads.

A key is being read if it has a seat: it was read within its hold, or its refresh is due or runs. With the policy `price` it is
being read too if its change is worth a row. The removal raises the floor even where there is no value: a load or a fill of the key
may be under way, and has read the old row.

A feed whose keys lie in a memory queue is confirmed once their pack is finished. So a fed change that merges into an older hint
must not be finished before that hint: both would be lost with the process. Its pack leans on the older ones. One per engine, which calls `take` for each pack. Nothing here knows a feed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.unit import Phase

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cacheupdater.core.cursors import OpenPack
    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.drops import Drops
    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.policy import Policy


class Fed:
    """The fed changes of one partition."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        dedup: Dedup,
        *,
        policy: Policy,
        drops: Drops,
        tally: Tally,
    ) -> None:
        self._keyspace = keyspace
        self._seats = dedup.seats
        self._policy = policy
        self._drops = drops
        self._tally = tally

    def take(self, hints: Hints, open_pack: OpenPack, now: float) -> Hints:
        """Returns the changes that are loaded. The values of all others are removed."""
        patient = self._policy.on_changes(hints.keys, now) if self._policy.learns else ()
        unread: list[bytes] = []
        for namespace, keys in self._keyspace.resolve_many(hints.keys)[0].items():
            left = self._unread(namespace, keys, patient)
            self._tally.add("fed", len(keys) - len(left), namespace.name, reason="refreshed")
            unread += left
        if unread:
            self._drops.remove_unread(unread, open_pack)
            hints = hints.without(frozenset(unread))[0]
        open_pack.lean(any(map(self._is_stood_for, hints.keys)))
        return hints

    def _is_stood_for(self, key: bytes) -> bool:
        """Whether an older hint may stand for a change of this key."""
        unit = self._seats.get(key)
        return unit is not None and unit.phase is not Phase.HELD

    def _unread(self, namespace: Namespace, keys: Sequence[bytes], patient: Collection[bytes]) -> list[bytes]:
        seats = self._seats
        if namespace.terms is None:  # no policy knows who reads these
            return [key for key in keys if key not in seats]
        return [key for key in keys if key in patient and key not in seats]
