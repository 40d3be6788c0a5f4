"""The ports of the service, in the order in which a hint flows: queue, loader, writer; then fleet, state, troubles, observer.

Each is a Protocol of two to five methods. `pipeline` calls them. `adapters` implement them, one file per port and technology.
`depot_ports` has those of the stores on which a shared queue is built. `testing` holds the fakes. One contract suite in `tests/contract` runs against every adapter and its fake.
The only errors that a port raises on purpose are `errors.Unavailable` and `errors.Faulty`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from cacheupdater.core.peers import NOBODY
from cacheupdater_client.protocol.fence import NO_FORMS, Entries, Form
from cacheupdater_client.protocol.patterns import Captures

if TYPE_CHECKING:
    from cacheupdater.core.answers import Answer
    from cacheupdater.core.events import QueueEvent
    from cacheupdater.core.metrics import Metric
    from cacheupdater.core.shares import Owner
    from cacheupdater_client.protocol.lease import Grace


class Message(NamedTuple):
    """One pack as it lies on the queue, not yet decoded."""

    offset: int
    payload: bytes
    peer: int = NOBODY
    place: int = 0  # on a queue that takes packs back: where `put_back` has put it, if it has
    clients: int = 1  # for so many the peer stood when it sent this


class Gained(NamedTuple):
    """A partition that is ours from now on. Work of an older epoch must not commit in a newer one."""

    partition: int
    epoch: int
    offset: int  # read from here: what the last owner committed as done


@dataclass(frozen=True, slots=True)
class Assignment:
    """A change of ownership. `settled()` is called when the lost partitions are handed over."""

    gained: tuple[Gained, ...]
    lost: tuple[int, ...]
    settled: Callable[[], None]
    back: bool = False  # the lost partitions come back to us at once, so nobody else waits for their work


class Queue(Protocol):
    """Packs by partition, at least once."""

    def assignments(self) -> AsyncIterator[Assignment]:
        """Ownership changes, until `close`."""
        ...

    async def fetch(self, partition: int, limit: int, held: Collection[int] = ()) -> Sequence[Message]:
        """The next 1 to `limit` messages in offset order; waits for the first. Cancellation loses none.

        Messages of the peers in `held` stay on the queue.
        """
        ...

    async def commit(self, partition: int, *, epoch: int, done: int, finished: Sequence[int] = ()) -> None:
        """Everything before `done` is finished; a restart reads from `done`. A commit of another epoch is ignored.

        The packs at the offsets `finished`, none before `done`, are finished too. Each offset is reported once. The queue
        need not deliver such a pack again, but may.
        """
        ...

    def reassign(self, partitions: Collection[int]) -> None:
        """Takes those of these partitions that are ours, and gives them back to us under a new epoch: a hand-over to ourselves.

        Packs that are not finished come again, as after a restart.
        """
        ...

    async def close(self) -> None:
        """Ends `assignments` and every waiting `fetch`."""
        ...


@runtime_checkable
class PutsBack(Protocol):
    """A queue that may take back what its owner cannot finish soon."""

    @property
    def takes_back(self) -> bool:
        """Whether it does."""
        ...

    async def put_back(self, partition: int, *, epoch: int, packs: Sequence[bytes]) -> range | None:
        """These packs lie on the queue again, at these places. None: the partition is not ours. Raises Unavailable.

        `fetch` returns them in this order, perhaps with others in between, and `Message.place` says which they are. Their offsets
        are known only then. Before an owner learns of the places, its own `fetch` may return the packs.
        """
        ...


class Stamped(dict[Captures, object]):
    """Values, and what their rows say about their last change."""

    def __init__(self, values: Mapping[Captures, object], stamps: Mapping[Captures, float]) -> None:
        super().__init__(values)
        self.stamps = stamps
        """By key: its row's version, or the seconds from its row's last change to this load, never negative. The
        configuration says which of the two. A key whose row says neither is missing."""


Leaves: TypeAlias = Callable[[], None]
"""Called when a statement leaves: the budget counts from this moment. Raises if the statement must not leave any more."""


def at_once() -> None:
    """Does nothing: for callers that need not know when a statement leaves."""


class Loader(Protocol):
    """The rows of one namespace, by key. One loader per namespace. A loader sets the deadline of its statements itself."""

    async def load(self, keys: Sequence[Captures], leaves: Leaves = at_once) -> Mapping[Captures, object]:
        """The value of each key that exists, in plain Python; a key left out has no row.

        Calls `leaves` just before the statement leaves, when nothing has to be waited for any more, such as a connection.
        What `leaves` raises is passed on, and no statement is sent.

        Only a complete, successful read may return: the value of a key that it leaves out is deleted in Redis. Raises
        Unavailable or Faulty.
        Returns `Stamped` if the loader knows a column that tells of changes and there are rows, else a plain mapping.
        """
        ...

    async def close(self) -> None: ...


Value: TypeAlias = bytes | Mapping[bytes, bytes] | None
"""What Redis shall hold: a string, a hash, or nothing because the row is absent."""


class Entry(NamedTuple):
    """One key to write. Each refresh makes plain tuples, for a named one takes six times as long."""

    key: bytes
    value: Value
    ttl_ms: int


class Found(NamedTuple):
    """What a reader of a key finds just now."""

    here: bool
    age: float | None  # seconds since the load that wrote it began, by its floor; None if no floor tells it
    wrote: Form | None = None  # the form in which a load of ours has written here, as the floor says
    value: Value = None  # if it was asked for; None for a type that is never written through the fence
    removed: bool = (
        False  # nothing is here, but a floor stands: a value was removed lately, or its row was found absent
    )


class Writer(Protocol):
    """Redis behind the fence: nothing older ever replaces something newer."""

    async def token(self, keys: Sequence[bytes] = ()) -> int:
        """Redis' time now, as a fence token. Taken before the database read begins.

        The token is good for these keys; without keys, for all. If the keys live on several servers, each of these servers
        is asked, and the token stands for all of their times.
        """
        ...

    async def write(
        self, token: int, entries: Entries, *, form: Form = "type", replace: bool = False
    ) -> Sequence[Answer]:
        """One answer per entry, in order; a key's own failure is an answer and never stops its neighbours.

        A value that does not read in this form and is not what we last wrote is foreign: it stays, unless `replace`.
        """
        ...

    async def invalidate(
        self,
        keys: Sequence[bytes],
        forms: Mapping[bytes, Form] = NO_FORMS,
        *,
        only_ours: Collection[bytes] = (),
    ) -> Sequence[Answer]:
        """Remove the values and raise their floors, so that no load begun before now can land.

        One answer per key, in order: written (the value is gone), failed (Redis refuses this key), unavailable (its server
        cannot do it now), foreign (the value does not read in the key's form and stays). Without a form any value is
        removed. But of the keys in `only_ours`, a value that no load of ours has written is spared. Raises Unavailable if
        nothing is known of any key: some values may be gone, so ask for all again.
        """
        ...

    async def prolong(
        self, keys: Sequence[bytes], grace: Grace, form: Form | None = None
    ) -> Sequence[bool | None]:
        """One more ttl for the values of these keys, whose source fails, as far as `grace` allows. Never less than they have.

        In order: whether the value has more time now. None: its server cannot do it now. A value gets no more time if it has no
        ttl, if its age is not known, if something newer than its load is known, or if it is foreign to `form`. Without a form
        no value is foreign. Raises Unavailable if nothing is known of any key.
        """
        ...

    async def look(self, keys: Sequence[bytes], *, values: bool = False) -> Sequence[Found | None]:
        """What readers of these keys find, in order; None where Redis does not say. Changes nothing."""
        ...

    async def close(self) -> None: ...


class Pauses(Protocol):
    """Which namespaces an operator has paused, kept beside the cache for all updaters. Raises Unavailable or Faulty."""

    async def entries(self) -> Mapping[bytes, bytes]:
        """The entry of each paused namespace, by its name."""
        ...

    async def pause(self, namespace: bytes, entry: bytes) -> None:
        """Pause this namespace, or replace its entry."""
        ...

    async def resume(self, namespace: bytes) -> None:
        """Pause it no more."""
        ...


class Offer(NamedTuple):
    """What an owner says about one source, at an exchange with its fleet. Rates are rows (or milliseconds) per second."""

    budget: float  # what all owners together may spend
    wanted: float
    held: float  # what it may spend while this call is under way; its claim is never less
    owner: Owner  # what the others shall know
    least: float = 0.0  # a smaller rate is of no use, and is not granted


class Grant(NamedTuple):
    """What the owner gets."""

    rate: float  # at most what was wanted; together with the claims of all others at most the budget
    others: tuple[Owner, ...]
    ahead: int = 0  # owners that have nothing and have waited for longer
    unsound: int = 0  # entries of the record that no owner writes: they were taken for absent


class Fleet(Protocol):
    """Updaters that share what their sources can afford. One object is one owner; nobody else has its claims.

    An owner that wants something and gets nothing waits. It keeps its place by asking every second. The fleet keeps free
    what the first ones in line need. A claim holds for at least `shares.CLAIM_LIFE` from the call, and ends by itself.
    For `shares.YOUTH` after a record has appeared, no owner gets more than it holds: claims that the record may have lost
    end meanwhile. A call that is carried out late, after a newer one, changes nothing.
    """

    async def exchange(self, source: str, offer: Offer) -> Grant:
        """Replace our claim. Raises Unavailable when it is not known whether that happened, else Faulty."""
        ...

    async def leave(self, source: str) -> None:
        """Give our claim up."""
        ...

    async def close(self) -> None: ...


class State(Protocol):
    """One file that outlives the process. Its methods block: the pipeline calls them in a thread."""

    def read(self) -> bytes | None:
        """All that was written last; None if nothing ever was. Raises Faulty if the file cannot be ours."""
        ...

    def write(self, pieces: Sequence[bytes]) -> None:
        """All of it or nothing, whatever happens meanwhile. Raises Unavailable."""
        ...

    def set_aside(self) -> str:
        """Save a file that cannot be read from being overwritten. Returns its new place. Raises Unavailable."""
        ...


class Troubles(Protocol):
    """Is notified of a trouble each time it is met. People read of its beginning and its end only."""

    def trouble(self, event: QueueEvent, subject: str, text: str) -> None:
        """The trouble has begun, or it lasts."""
        ...

    def over(self, event: QueueEvent, subject: str) -> None:
        """The trouble has ended, if it ever began."""
        ...


class Observer(Protocol):
    """Every stage reports here what it did. Labels come from closed sets only: never a key."""

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:
        """`label` is the namespace (or partition), `reason` the result or cause."""
        ...

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        """One observation of a histogram."""
        ...

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        """The present value of a gauge."""
        ...

    def end(self, metric: Metric, *, label: str = "") -> None:
        """The gauge has no value any more, such as one of a partition that another process owns by now."""
        ...
