"""What becomes of hints that are given up: a dropped change must not leave its old value behind, any other drop is only counted.

The schedule drops what has waited too long, what a full backlog gives up, and what is paused; quarantine bars keys that fail
by themselves. The engine asks for both accounts. Nothing loads a paused or barred key for long, so its readers fill it
themselves. Their SET is a change, too. If it removed what it has just written, each read would ask the database. So while a key
is paused or barred, a change that is marked as set removes only what a load of ours has written. A change that somebody has
announced removes any value, and so does each change that is dropped for another reason. Lives as long as its engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.cursors import OpenPack
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.prolonging import Prolonging
    from cacheupdater.core.quarantine import Quarantine
    from cacheupdater.core.removals import Removals
    from cacheupdater.core.shedding import Dropped
    from cacheupdater.core.strangers import Strangers
    from cacheupdater.core.unit import Demand


class Drops:
    """The dropped hints of one engine."""

    def __init__(
        self,
        keyspace: Keyspace[Namespace],
        strangers: Strangers,
        *,
        removals: Removals,
        prolonging: Prolonging,
        tally: Tally,
    ) -> None:
        self._keyspace = keyspace
        self._strangers = strangers
        self._removals = removals
        self._prolonging = prolonging
        self._tally = tally

    def account_for(self, dropped: Dropped) -> None:
        """Keys that were due are dropped: their pack ends, or waits until they are removed."""
        namespace, keys, demand, reason = dropped
        if demand.kind is not Kind.CHANGE:
            self._tally.add("dropped", len(keys), namespace.name, reason=reason)
            demand.open_pack.release(len(keys))
            return
        ours = self._strangers.ours(namespace.pattern, keys)
        self._tally.add("dropped", len(ours), namespace.name, reason=reason)
        self._tally.add("dropped", len(keys) - len(ours), reason="unknown")
        only_ours = reason == "paused" and demand.is_set
        self._removals.ask(namespace, ours, [demand.open_pack] * len(ours), only_ours=only_ours)
        demand.open_pack.release(len(keys) - len(ours))

    def remove_unread(self, keys: Sequence[bytes], open_pack: OpenPack) -> None:
        """Changed keys that nobody reads. Keys of no namespace are not ours to remove."""
        removed = 0
        for namespace, known in self._keyspace.resolve_many(keys)[0].items():
            ours = self._strangers.ours(namespace.pattern, known)
            self._tally.add("fed", len(ours), namespace.name, reason="removed")
            open_pack.hold(len(ours))
            self._removals.ask(namespace, ours, [open_pack] * len(ours), unread=True)
            removed += len(ours)
        self._tally.add("dropped", len(keys) - removed, reason="unknown")

    def outside_quarantine(
        self, keys: list[bytes], demand: Demand, now: float, *, quarantine: Quarantine
    ) -> tuple[list[bytes], list[bytes]]:
        """The keys that are not in quarantine, and those whose time in it is over. The others are dropped."""
        listed = dict.fromkeys(key for key in keys if key in quarantine.keys)
        if not listed:
            return keys, []
        freed = [key for key in listed if not quarantine.bars(key, now)]
        barred = [key for key in keys if key in quarantine.keys]
        self._bar(barred, demand, now)
        return [key for key in keys if key not in listed], freed

    def _bar(self, keys: Sequence[bytes], demand: Demand, now: float) -> None:
        """Hints of these keys are declined, because the keys are in quarantine."""
        open_pack = demand.open_pack
        for namespace, known in self._keyspace.resolve_many(keys)[0].items():
            self._tally.add("dropped", len(known), namespace.name, reason="quarantined")
            if demand.kind is Kind.CHANGE:
                open_pack.hold(len(known))
                self._removals.ask(namespace, known, [open_pack] * len(known), only_ours=demand.is_set)
            elif demand.kind is Kind.TOUCH:
                self._prolonging.failed(namespace, known, now)
