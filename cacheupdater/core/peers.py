"""Which peers sent the hints that are open. A peer is one connection of an application, and the connections that follow it
from the same process: they take over its number (`Peering`). A collector is one peer, and says for how many clients it stands.

An engine has one `Peers`. Every open pack points to its `Peer`, which lives as long as one of its hints is open. A peer with
more open hints than leave room for others is held: its packs are not read until some of its hints are done, and the others'
packs are. Nobody can make the senders of a topic wait. Their hints belong to `NOBODY`, which is never held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cacheupdater.core.fair import leaves_room

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from cacheupdater.core.limits import Limits

KEPT_FREE = 0.1
"""Part of the places that held peers leave free. One fetch may bring more than there was room for. Of 100,000 places this part is
ten packs of 1,000 hints. A fetch brings eight of these packs if their keys have ten bytes, and more only if keys are shorter."""

LITTLE = 20
"""If no more keys than this wait in a peer's turn, no other peer takes any: they are served within a turn or two."""

NUMBERS = 1024
"""Numbers of peers; when all are used, they are used again. As many as the connections that a listener accepts at once."""

CLIENTS_MAX = 64
"""A peer stands for no more clients than this, whatever it says: as many processes as a large machine runs. A peer that lies
gets what 64 connections would get, and whoever may connect once may do so 64 times. Even such a peer leaves a 513th of each
store to others (`fair.PART`): seven of a partition's 4,096 unread packs."""

_NONE: frozenset[int] = frozenset()
NOBODY = 0


class Peering:
    """The numbers of peers: a base of everything into which peers put packs. One process has one of these."""

    def __init__(self) -> None:
        self._highest = NOBODY
        self._free: dict[int, Hashable] = {}  # each with the origin of its last owner; the longest free first
        self._clients: dict[int, int] = {}  # by connected peer

    def newcomer(self, origin: Hashable = None) -> int:
        """A number for a new peer.

        If peers from the same `origin` have left, the new peer gets the number of the last one. Otherwise it gets a number
        that no peer has had. If there is none, it gets the number that has been free for longest. Packs that the last owner
        of the number left behind count against the new one. So a sender that connects anew for each pack stays one peer, and
        no more peers take turns than may be connected at once.
        """
        number = next((each for each in reversed(self._free) if self._free[each] == origin), None)
        if number is None and self._highest >= NUMBERS:
            number = next(iter(self._free), None)
        if number is None:
            self._highest += 1
            return self._highest
        del self._free[number]
        return number

    def gone(self, peer: int, origin: Hashable = None) -> None:
        """This peer has left, and will put nothing more."""
        self._free[peer] = origin
        self._clients.pop(peer, None)

    @property
    def clients(self) -> int:
        """For how many clients all peers stand that have said a number."""
        return sum(self._clients.values())

    def stand(self, peer: int, clients: int) -> None:
        """From now on this peer stands for so many clients, or for as many as are believed."""
        self._clients[peer] = min(clients, CLIENTS_MAX)

    def clients_of(self, peer: int) -> int:
        """For how many clients this peer stands."""
        return self._clients.get(peer, 1)


class Peer:
    """What one peer has open in one partition."""

    __slots__ = ("__weakref__", "clients", "number", "open", "removals", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.clients = 1  # for so many it stood when it sent its last pack
        self.open = 0  # heads, tails and removals that stand for its hints
        self.removals = 0  # those of them that wait for their rate
        self.waiting = 0  # keys that wait in its turn, whichever peer has named them first

    def is_ahead(self, other: Peer) -> bool:
        """Whether a key that both peers wait for is served sooner in the turn of this one.

        This peer must wait for far fewer keys, or the key would go to and fro. Keys that it took over from others count, or
        it could gather any number of them. A peer with few keys loses none. A peer of many clients waits for its keys no longer
        than each client would for its part of them.
        """
        others = max(other.open, other.waiting) / other.clients
        return others > LITTLE and 2 * max(self.open, self.waiting) / self.clients < others


class Peers:
    """All peers with open hints."""

    def __init__(self, limits: Limits) -> None:
        self._pending = round(limits.pending * (1.0 - KEPT_FREE))
        self._removals = round(limits.removals * (1.0 - KEPT_FREE))
        self._peers: WeakValueDictionary[int, Peer] = WeakValueDictionary()

    def of(self, number: int, clients: int = 1) -> Peer:
        """The peer of this number, which stands for so many clients now."""
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = Peer(number)
        peer.clients = clients
        return peer

    def held(self, pending: int, removals: int) -> Collection[int]:
        """The peers whose packs shall not be read, if all have so much pending together. Most calls take two comparisons."""
        if _roomy(pending, self._pending) and _roomy(removals, self._removals):
            return _NONE
        return frozenset(
            peer.number
            for peer in self._peers.values()
            if peer.number != NOBODY
            and not (
                leaves_room(peer.open, pending, self._pending, peer.clients)
                and leaves_room(peer.removals, removals, self._removals, peer.clients)
            )
        )


def _roomy(total: int, most: int) -> bool:
    """Whether even a peer that had all of it would leave room."""
    return leaves_room(total, total, most)
