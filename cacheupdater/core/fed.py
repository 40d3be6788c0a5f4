"""Changes that a feed told: which of them are loaded, and which only remove their value.

An application that announces a change has removed the value itself, so its change may wait for a quiet moment. Nobody has removed
the value of a fed change: readers get the old one until we act. So a fed change never waits for long. If its key is being
read, it is loaded at once, and readers get the old value until the new one is there. Any other value is removed. Then a
statement that changes a million rows costs loads for those keys alone that somebody reads.

A key is being read if it has a seat: it was read within its hold, or its refresh is due or runs. With the policy `price` it is
being read too if its change is worth a row. The removal raises the floor even where there is no value: a load or a fill of the key
may be under way, and has read the old row.

A feed whose keys lie in a memory queue is confirmed once their pack is finished. So a fed change that merges into an older hint
must not be finished before that hint: both would be lost with the process. Its pack leans on the older ones. A read that merges into
a fed change must not be finished before it either. Whoever reads the change again after a crash knows nothing of the reader, and
only removes the value.

One per engine, which calls `take` for each pack of fed changes, and `lean` for each pack of reads. Nothing here knows a feed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.hints import Kind
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

_ROOM = 1024  # keys that are kept before they are tidied up


def is_fed(hints: Hints) -> bool:
    """Whether these are changes that a feed told: they say when the row was committed."""
    return hints.kind is Kind.CHANGE and bool(hints.tokens)


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
        self._dedup = dedup
        self._seats = dedup.seats
        self._policy = policy
        self._drops = drops
        self._tally = tally
        self._loaded: set[bytes] = (
            set()
        )  # keys of which a change was loaded; whether it still is, their seats say
        self._roomy = _ROOM

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
        if hints.keys:
            open_pack.fed = True
            self._note(hints.keys)
        return hints

    def lean(self, reads: Hints, open_pack: OpenPack) -> None:
        """The pack of these touches or misses is finished only with the fed changes that stand for some of them."""
        if self._loaded and reads.kind is not Kind.CHANGE:
            open_pack.lean(any(map(self._is_loading, self._loaded.intersection(reads.keys))))

    def _note(self, keys: Sequence[bytes]) -> None:
        if len(self._loaded) > self._roomy:
            self._loaded = set(filter(self._is_loading, self._loaded))
            self._roomy = 2 * len(self._loaded) + _ROOM
        self._loaded.update(keys)

    def _is_loading(self, key: bytes) -> bool:
        """Whether this key waits or runs for a fed change."""
        unit = self._seats.get(key)
        if unit is None or unit.phase is Phase.HELD:
            return False
        tail = self._dedup.tails.get(key)
        demands = [unit.demand, *(demand for demand, _ in unit.parts)] + ([tail] if tail else [])
        return any(demand.open_pack.fed for demand in demands)

    def _is_stood_for(self, key: bytes) -> bool:
        """Whether an older hint may stand for a change of this key."""
        unit = self._seats.get(key)
        return unit is not None and unit.phase is not Phase.HELD

    def _unread(self, namespace: Namespace, keys: Sequence[bytes], patient: Collection[bytes]) -> list[bytes]:
        seats = self._seats
        if namespace.terms is None:  # no policy knows who reads these
            return [key for key in keys if key not in seats]
        return [key for key in keys if key in patient and key not in seats]
