"""The ports of the service, in the order in which a hint flows: queue, loader, writer; and the observer of all.

Each is a Protocol of two to five methods. `pipeline` calls them, `adapters` implement them (one file per port
and technology), `testing` holds the fakes; one contract suite in `tests/contract` runs against every adapter
and its fake. A port raises `errors.Unavailable` or `errors.Faulty` and nothing else on purpose.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from cacheupdater.core.peers import NOBODY
from cacheupdater_client.protocol.fence import NO_FORMS, Form
from cacheupdater_client.protocol.patterns import Captures

if TYPE_CHECKING:
    from cacheupdater.core.answers import Answer
    from cacheupdater.core.events import QueueEvent
    from cacheupdater.core.metrics import Metric
    from cacheupdater.core.shares import Owner


class Message(NamedTuple):
    """One pack as it lies on the queue, not yet decoded."""

    offset: int
    payload: bytes
    peer: int = NOBODY


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


class Queue(Protocol):
    """Packs by partition, at least once."""

    def assignments(self) -> AsyncIterator[Assignment]:
        """Ownership changes, until `close`."""
        ...

    async def fetch(self, partition: int, limit: int, held: Collection[int] = ()) -> Sequence[Message]:
        """The next 1 to `limit` messages in offset order; waits for the first. Cancellation loses none.

        Those of the peers `held` stay where they are.
        """
        ...

    async def commit(self, partition: int, *, epoch: int, done: int, finished: Sequence[int] = ()) -> None:
        """Everything before `done` is finished; a restart reads from `done`. Ignored in another epoch.

        So are packs at the offsets `finished`, from `done` on, each told once: they need not come again, but may.
        """
        ...

    async def close(self) -> None:
        """Ends `assignments` and every waiting `fetch`."""
        ...


class Stamped(dict[Captures, object]):
    """Values, and what their rows say about their last change."""

    def __init__(self, values: Mapping[Captures, object], stamps: Mapping[Captures, float]) -> None:
        super().__init__(values)
        self.stamps = stamps
        """By key: its version, or the seconds from its last change to this load, never negative. Which of the two the
        configuration says. A key whose row says neither is missing."""


Leaves: TypeAlias = Callable[[], None]
"""Told when a statement leaves: the budget counts from there. It raises where it must not leave any more."""


def at_once() -> None:
    """For who needs not be told."""


class Loader(Protocol):
    """The rows of one namespace, by key. One loader per namespace; its statement deadline is its own affair."""

    async def load(self, keys: Sequence[Captures], leaves: Leaves = at_once) -> Mapping[Captures, object]:
        """The value of each key that exists, in plain Python; a key left out has no row.

        Calls `leaves` when nothing keeps the statement from leaving any more, such as a connection that must be made;
        what that raises goes up, and nothing is asked.

        Only a complete, successful read may return: absence deletes. Raises Unavailable or Faulty.
        `Stamped` where the loader was told which column tells of changes and there are rows, else a plain mapping.
        """
        ...

    async def close(self) -> None: ...


Value: TypeAlias = bytes | Mapping[bytes, bytes] | None
"""What Redis shall hold: a string, a hash, or nothing because the row is absent."""


class Entry(NamedTuple):
    """One key to write."""

    key: bytes
    value: Value
    ttl_ms: int


class Found(NamedTuple):
    """What a reader of a key finds just now."""

    here: bool
    age: float | None  # seconds since the load that wrote it began, by its floor; None without one
    wrote: Form | None = None  # the form in which a load of ours has written here, by the floor
    value: Value = None  # where it was asked for; None for a type that nobody writes through the fence


class Writer(Protocol):
    """Redis behind the fence: nothing older ever replaces something newer."""

    async def token(self, keys: Sequence[bytes] = ()) -> int:
        """Redis' time now, as a fence token. Taken before the database read begins.

        Good for these keys; without any, for all. Where keys live on several servers, each that has some of them is
        asked, and the token stands for all of their times.
        """
        ...

    async def write(
        self, token: int, entries: Sequence[Entry], *, form: Form = "type", replace: bool = False
    ) -> Sequence[Answer]:
        """One answer per entry, in order; a key's own failure is an answer and never stops its neighbours.

        What is there, does not read in this form and is not what we last wrote is foreign: it stays, unless `replace`.
        """
        ...

    async def invalidate(
        self, keys: Sequence[bytes], forms: Mapping[bytes, Form] = NO_FORMS
    ) -> Sequence[Answer]:
        """Remove the values and raise their floors, so that no load begun before now can land.

        One answer per key, in order: written (it is gone), failed (Redis refuses this key), unavailable (its server
        cannot do it now), foreign (it does not read in the key's form and stays). Without a form whatever is there goes. Raises Unavailable where nothing is known of any: some may be gone, ask for all again.
        """
        ...

    async def look(self, keys: Sequence[bytes], *, values: bool = False) -> Sequence[Found | None]:
        """What readers of these keys find, in order; None where Redis does not say. Changes nothing."""
        ...

    async def close(self) -> None: ...


class Offer(NamedTuple):
    """What an owner says about one source, at an exchange with its fleet. Rates are rows (or milliseconds) per second."""

    budget: float  # what all owners together may spend
    wanted: float
    held: float  # what it may spend while this call is under way; its claim is never less
    owner: Owner  # what the others shall know
    least: float = 0.0  # less is of no use, and is not granted


class Grant(NamedTuple):
    """What it gets."""

    rate: float  # at most what was wanted; with the claims of all others at most the budget
    others: tuple[Owner, ...]
    ahead: int = 0  # owners that have nothing and have waited for longer
    unsound: int = 0  # what was found in the record that no owner writes, and was taken for absent


class Fleet(Protocol):
    """Updaters that share what their sources can afford. One object is one owner; nobody else has its claims.

    Who wants something and gets nothing waits, and keeps its place by asking every second: what the first of those need is
    kept free for them. A claim holds for `shares.CLAIM_LIFE` from the call at least, and ends by itself. In a record
    that has just appeared nobody gets more than it holds, for `shares.YOUTH`: claims that it has lost end meanwhile.
    A call that is carried out late, after a newer one, changes nothing.
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
        """What was written last, whole; None when nothing ever was. Raises Faulty when it cannot be ours."""
        ...

    def write(self, pieces: Sequence[bytes]) -> None:
        """All of it or nothing, whatever happens meanwhile. Raises Unavailable."""
        ...

    def set_aside(self) -> str:
        """Keep what cannot be read from being written over; says where it is now. Raises Unavailable."""
        ...


class Troubles(Protocol):
    """Told of what lasts, as often as it is met; people read of its beginning and its end."""

    def trouble(self, event: QueueEvent, subject: str, text: str) -> None:
        """It has begun, or it goes on."""
        ...

    def over(self, event: QueueEvent, subject: str) -> None:
        """It has ended, if it ever began."""
        ...


class Observer(Protocol):
    """Told by every stage what it did. Labels come from closed sets only: never a key."""

    def count(self, metric: Metric, amount: int, *, label: str = "", reason: str = "") -> None:
        """`label` is the namespace (or partition), `reason` the result or cause."""
        ...

    def measure(self, metric: Metric, value: float, *, label: str = "") -> None:
        """One observation of a histogram."""
        ...

    def level(self, metric: Metric, value: float, *, label: str = "") -> None:
        """The present value of a gauge."""
        ...
