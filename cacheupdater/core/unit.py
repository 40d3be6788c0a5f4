"""Keys that wait, run and hold their seats together, and the demands that made them due.

A `Unit` is made when hints are accepted, runs when its rows can be paid, and lives until the last seat in it is
over. The engine recognises a unit by the object itself: the pipeline hands it back when its head ends. A key whose
seat is another unit by then has moved on.
`dedup` and `schedule` make and change units; the pipeline only reads them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.heat import heat_of
from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.cursors import OpenPack
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.payment import Receipt
    from cacheupdater.core.peers import Peer
    from cacheupdater_client.protocol.patterns import Captures

URGENCY = {Kind.MISS: 0, Kind.CHANGE: 1, Kind.TOUCH: 2}
"""Which is served first: a miss has a reader waiting, a change an old value, a touch neither."""

PATIENT = 3
"""The urgency of a change that is not worth its row at the present price: it waits for a quiet moment."""


UNSEEN = 4
"""The queue of misses of unseen keys. They are as urgent as any miss, but may have to wait for the absent bucket."""

SLOW = 5
"""The first of the queues of suspects (`slow_keys`) that run in pieces, one for each urgency."""

KNOWN = SLOW + PATIENT + 1
"""The first of the queues of suspects that run alone: slow keys, as far as we know."""

QUEUES = KNOWN + PATIENT + 1


class Demand(NamedTuple):
    """Why keys are due; of a tail, why its key will be due again. `open_pack` is held until the keys are finished or dropped."""

    kind: Kind  # the strongest that is covered: change > miss > touch
    urgency: int  # the most urgent that is covered
    open_pack: OpenPack
    since: float  # arrival of the oldest hint: bounds how long it may wait
    not_before: float = 0.0
    # from when a change that joins may start, if that is earlier: a start that no change has caused holds up no change
    earliest: float | None = None
    alone: bool = False  # part of a unit that failed: never joined with others again
    unseen: bool = False  # misses, and nobody knows whether their rows exist
    slow: int = 0  # of suspects: at most so many of them run together
    moved_to: Peer | None = None  # the peer in whose turn it waits, if not the one of its oldest hint
    asks: int = 1  # of a miss: readers that have asked, or will; of several keys, the fewest
    is_set: bool = False  # of a change: each change that it covers has just set its value

    @property
    def peer(self) -> Peer:
        """The peer in whose turn it waits."""
        return self.moved_to or self.open_pack.peer

    @property
    def queue(self) -> int:
        """The number of the queue in which it waits."""
        if self.slow:
            return (SLOW if self.slow > 1 else KNOWN) + self.urgency
        return UNSEEN if self.unseen else self.urgency

    @property
    def heat(self) -> int:
        """How much it is wanted, beside others of its urgency."""
        return heat_of(self.asks) if self.urgency == URGENCY[Kind.MISS] else 0

    def outweighs(self, other: Demand) -> bool:
        """Whether the other one alone would stand for less: it is weaker, or it is a set and this one was announced."""
        if self.kind is not other.kind:
            return self.kind > other.kind
        return self.kind is Kind.CHANGE and other.is_set and not self.is_set

    def covering(self, other: Demand) -> Demand:
        """This demand with another one. It waits in the turn of the peer that is served sooner."""
        kind, urgency, peer = other.kind, other.urgency, other.peer
        demand = self._replace(moved_to=peer) if peer.is_ahead(self.peer) else self
        if kind is Kind.CHANGE:
            is_set = other.is_set and (self.is_set or self.kind is not Kind.CHANGE)
            demand = demand if demand.is_set is is_set else demand._replace(is_set=is_set)
        if kind <= self.kind and urgency >= self.urgency:
            return demand
        stronger = demand._replace(kind=max(kind, self.kind), urgency=min(urgency, self.urgency))
        if kind is not Kind.CHANGE:
            return stronger
        if self.earliest is not None:
            stronger = stronger._replace(not_before=self.earliest, earliest=None)
        return (
            stronger._replace(unseen=False) if self.unseen else stronger
        )  # whoever has changed a row knows it

    def apart(self, most: int) -> Demand:
        """The same for suspects, of which so many run together. They wait for each other, and for no quiet moment."""
        return self._replace(alone=True, slow=most)

    def refused(self, until: float) -> Demand:
        """As urgent as a change, for there was one. Nobody announced it here, so the demand keeps its kind."""
        urgency = min(URGENCY[Kind.CHANGE], self.urgency)
        return self._replace(urgency=urgency, not_before=until)


class Phase(Enum):
    """The life of a unit."""

    DUE = "due"
    RUNNING = "running"
    HELD = "held"  # ended; its keys keep their seats for a while
    OVER = "over"  # nothing of it is left: evicted, failed as a whole, or forgotten


class Unit:
    """1 to 200 keys of one namespace."""

    __slots__ = (
        "announced",
        "began",
        "captures",
        "demand",
        "ended",
        "gone",
        "hold_until",
        "keys",
        "late",
        "namespace",
        "overtaken",
        "parts",
        "phase",
        "ready",
        "receipt",
    )

    receipt: Receipt
    """What it has paid: from its start on."""

    def __init__(self, namespace: Namespace, keys: list[bytes], demand: Demand) -> None:
        self.namespace = namespace
        self.keys = keys
        self.demand = demand  # of a due unit; `parts` has those of a running one
        self.phase = Phase.DUE
        self.late = False  # its hold is over, its seats are not
        self.ready = False  # lies in a queue of its backlog (and is not delayed)
        self.overtaken = 0  # full units that came later and were taken before it
        self.gone = 0  # keys listed here whose seat is another unit by now; `seats` counts them
        self.parts: Sequence[tuple[Demand, list[bytes]]] = ()
        self.captures: Sequence[Captures] = ()  # parallel to keys, while it runs
        self.announced: Sequence[list[bytes]] = ()  # its keys that were started for a change, part by part
        self.began = self.hold_until = self.ended = 0.0

    def asked(self, demand: Demand, asks: int) -> Demand:
        """This demand of a key, with more readers. A key that is alone in its unit stays there until its heat rises."""
        asked = demand._replace(asks=demand.asks + asks)
        if demand is self.demand and len(self.keys) == 1 and asked.heat == demand.heat:
            self.demand = asked
        return asked

    def __repr__(self) -> str:
        return f"<Unit {self.namespace.name} {self.phase.value} {len(self.keys) - self.gone} keys>"
