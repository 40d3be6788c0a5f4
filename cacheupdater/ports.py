"""The ports of the service, in the order in which a hint flows: queue, loader, writer; and the observer of all.

Each is a Protocol of two to five methods. `pipeline` calls them, `adapters` implement them (one file per port
and technology), `testing` holds the fakes; one contract suite in `tests/contract` runs against every adapter
and its fake. A port raises `errors.Unavailable` or `errors.Faulty` and nothing else on purpose.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from cacheupdater.core.answers import Answer
    from cacheupdater.core.keyspace import Captures
    from cacheupdater.core.metrics import Metric


class Message(NamedTuple):
    """One pack as it lies on the queue, not yet decoded."""

    offset: int
    payload: bytes


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

    async def fetch(self, partition: int, limit: int) -> Sequence[Message]:
        """The next 1 to `limit` messages in offset order; waits for the first. Cancellation loses none."""
        ...

    async def commit(self, partition: int, *, epoch: int, done: int) -> None:
        """Everything before `done` is finished; a restart reads from `done`. Ignored in another epoch."""
        ...

    async def close(self) -> None:
        """Ends `assignments` and every waiting `fetch`."""
        ...


class Loader(Protocol):
    """The rows of one namespace, by key. One loader per namespace; its statement deadline is its own affair."""

    async def load(self, keys: Sequence[Captures]) -> Mapping[Captures, object]:
        """The value of each key that exists, in plain Python; a key left out has no row.

        Only a complete, successful read may return: absence deletes. Raises Unavailable or Faulty.
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


class Writer(Protocol):
    """Redis behind the fence: nothing older ever replaces something newer."""

    async def token(self) -> int:
        """Redis' time now, as a fence token. Taken before the database read begins."""
        ...

    async def write(self, token: int, entries: Sequence[Entry]) -> Sequence[Answer]:
        """One answer per entry, in order; a key's own failure is an answer and never stops its neighbours."""
        ...

    async def invalidate(self, keys: Sequence[bytes]) -> None:
        """Remove the values and raise their floors, so that no load begun before now can land."""
        ...

    async def close(self) -> None: ...


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
