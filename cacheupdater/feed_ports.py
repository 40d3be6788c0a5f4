"""The ports of feeds: what tells the changes of a source's rows, although no application announces them.

`feeds.reader` reads one `Feed` per source, makes keys of its rows, and puts them on the queue as changes. It confirms a batch
once all keys of the batch are safe there. So each change arrives at least once, whatever dies meanwhile. `changes install`,
`changes remove` and `check --connect` use `Installable`. One contract suite in `tests/contract/test_feed.py` runs against every
adapter and its fake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from cacheupdater_client.protocol.patterns import Capture

Cell: TypeAlias = int | str | UUID | None
"""What a column holds. Whole numbers and UUIDs are read by the column's type; everything else is text, or None for NULL."""

Cells: TypeAlias = Mapping[str, Cell]
"""Columns of one row by name, as far as the feed tells them."""

Position: TypeAlias = object
"""Where a batch ends. Only the feed that has given it knows what it means."""


class Changed(NamedTuple):
    """One row that was inserted, updated or deleted."""

    table: str  # with its schema, as `public.products`, where the database has schemas
    rows: Sequence[
        Cells
    ]  # as it was and as it is: one of them, or both if columns that the feed watches may have changed


class Skipped(NamedTuple):
    """Records that tell no change and were passed over, so that the feed goes on."""

    reason: Literal["malformed", "foreign"]  # no JSON, or not what the feed reads
    records: int
    where: str  # the place of the last one, for people; nothing that it holds


class Batch(NamedTuple):
    """What a feed tells at once: changes in the order of their commits, and of whole transactions or parts of one."""

    changes: Sequence[Changed]
    position: Position  # to confirm, once all of the batch is safe
    committed: float | None = (
        None  # when the last of them was committed: seconds since 1970, by the database's clock
    )
    emptied: Sequence[
        str
    ] = ()  # tables of which any row may have changed: a truncate, or changes that were lost
    why: str = ""  # why `emptied`, for people
    skipped: Sequence[Skipped] = ()  # one for each reason
    lacks: Sequence[
        str
    ] = ()  # what the feed cannot tell yet, in a few sentences; each batch has them while that lasts


class Watched(NamedTuple):
    """A table that a feed must tell of, and the columns that it must tell."""

    table: str  # as the configuration writes it: `products` or `shop.products`
    columns: tuple[str, ...]  # of which keys are made


class Feed(Protocol):
    """The changes of one source. One process reads a feed at a time; the others wait for their turn."""

    async def start(self) -> None:
        """Waits until it is our turn, and connects. Raises Unavailable (try again), Misconfigured or Faulty (a person must act).

        Called again after an error, or after `stop`; what was read and not confirmed comes again.
        """
        ...

    def batches(self) -> AsyncIterator[Batch]:
        """Changes after those that were confirmed, until `stop`. Never silent for longer than `SILENCE_MAX`: an empty batch
        shows that the database still speaks. Raises Unavailable, Misconfigured or Faulty; then `start` is called again."""
        ...

    async def confirm(self, position: Position) -> None:
        """All batches up to this one are safe, and need not come again. Positions are confirmed in the order of their batches.
        Raises Unavailable; then the positions since the last that was confirmed may come again."""
        ...

    async def waiting(self) -> int | None:
        """How much waits for us at the source: bytes of WAL, rows of an outbox, messages. None: it is not known."""
        ...

    async def stop(self) -> None:
        """Gives up the turn, so that another process can read at once. Never raises."""
        ...


class Finder(Protocol):
    """The keys that a row of another table concerns: one change, many keys."""

    async def find(self, values: Sequence[Capture]) -> Sequence[Sequence[Cell]]:
        """The captures of the keys that rows with these values, all of one type, concern. Raises Unavailable or Faulty."""
        ...


SILENCE_MAX = 10.0  # seconds without a word; a feed that is silent for three times as long counts as lost


class Lack(NamedTuple):
    """Something that a feed needs and does not have."""

    what: str  # a sentence for people
    sql: Sequence[str] = ()  # statements that mend it, for those who have the right; may be none
    grave: bool = True  # False: the feed works, but misses something that `what` names


class Installable(Protocol):
    """What must exist in the database before a feed can be read. Every method raises Unavailable or Misconfigured."""

    async def lacks(self) -> Sequence[Lack]:
        """What is missing now; nothing if the feed can be read."""
        ...

    async def install(self) -> Sequence[str]:
        """Makes what is missing. Returns the statements that were run; none if all was there. May be called again."""
        ...

    async def remove(self) -> Sequence[str]:
        """Removes all that `install` makes, without a trace. Returns the statements that were run."""
        ...

    async def script(self) -> Sequence[str]:
        """What makes what is missing, for a person to run from top to bottom. A statement may have comments (`-- …`) on lines
        before it. Never stops the application's writes."""
        ...

    async def removal(self) -> Sequence[str]:
        """The statements of `remove`, for a person to run, also while updaters still read; none if nothing is there."""
        ...

    async def close(self) -> None:
        """Ends the connection. Never raises."""
        ...


class Marks(Protocol):
    """Where a feed goes on that the database cannot remember, and whose turn it is: both in one place, so that a reader that has
    lost its turn cannot write. Every method raises Unavailable or Faulty, `leave` and `close` nothing."""

    async def take(self) -> Mapping[str, str] | None:
        """Takes the turn, or renews it, for `LEASE` seconds. The marks that were kept last; None: another has the turn."""
        ...

    async def keep(self, marks: Mapping[str, str]) -> None:
        """Replaces these marks, and renews the turn. Raises Unavailable if another has the turn: then nothing is written."""
        ...

    async def leave(self) -> None:
        """Gives up the turn. The marks stay."""
        ...

    async def close(self) -> None:
        """Closes the connections."""
        ...


LEASE = 5.0  # seconds after which another takes the turn of a reader that was killed
