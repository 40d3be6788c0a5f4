"""Who sent the hints that are open: one connection of an application each.

An engine has one `Peers`; every origin points to its `Peer`, which lives as long as anything of it is open. What is open
of a peer is what it costs: of one that has more than its part no more is read, until some of it is done, while others are
read on. Hints of a topic have no peer that could be made to wait: they all are `NOBODY`'s, who is never held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cacheupdater.core.fair import leaves_room

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.core.limits import Limits

KEPT_FREE = 0.1
"""Of the places: what one turn of reading may bring before its peer is held, so that those who are not find room. At 100,000
places ten packs, and a turn reads eight at the most."""

_NONE: frozenset[int] = frozenset()
NOBODY = 0


class Peer:
    """What one has open in one partition."""

    __slots__ = ("__weakref__", "number", "open", "removals")

    def __init__(self, number: int) -> None:
        self.number = number
        self.open = 0  # heads, tails and removals that stand for its hints
        self.removals = 0  # those of them that wait for their rate

    def is_ahead(self, other: Peer) -> bool:
        """Whether a key that both wait for is served sooner in our turn: by far less is open of us, so that no key goes
        to and fro."""
        return 2 * self.open < other.open


class Peers:
    """All that have something open."""

    def __init__(self, limits: Limits) -> None:
        self._pending = round(limits.pending * (1.0 - KEPT_FREE))
        self._removals = round(limits.removals * (1.0 - KEPT_FREE))
        self._peers: WeakValueDictionary[int, Peer] = WeakValueDictionary()

    def of(self, number: int) -> Peer:
        """The one of this number."""
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = Peer(number)
        return peer

    def held(self, pending: int, removals: int) -> Collection[int]:
        """Those of whom no more shall be read, with so much pending of all. Most of the time that takes one comparison."""
        if _roomy(pending, self._pending) and _roomy(removals, self._removals):
            return _NONE
        return frozenset(
            peer.number
            for peer in self._peers.values()
            if peer.number != NOBODY
            and not (
                leaves_room(peer.open, pending, self._pending)
                and leaves_room(peer.removals, removals, self._removals)
            )
        )


def _roomy(total: int, most: int) -> bool:
    """Even one that had all of it would leave room."""
    return leaves_room(total, total, most)
