"""What a feed that polls is told, and what it needs of a database. `service` makes the settings from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from sqlalchemy import Connection, Executable

    from cacheupdater.feed_ports import Watched

T = TypeVar("T")


class PollTable(NamedTuple):
    """A table, and the column that grows with each change of a row."""

    watched: Watched
    column: str
    every: float = 1.0  # seconds between two looks for new rows: how old a change may be that is not yet told


class PollSettings(NamedTuple):
    """All tables of one source."""

    tables: Sequence[PollTable]
    # seconds from the beginning of a transaction to its commit; longer ones may be missed. Rows are read again meanwhile
    overlap: float = 30.0
    rows_per_second: float = 2000.0  # that all looks may read: a tenth of what a small database gives
    batch: int = 500  # rows of one statement, which takes some milliseconds and holds no lock
    told_max: int = 100_000  # rows of the overlap that are remembered, per table: some 20 MB


class Database(Protocol):
    """The connections of a source: `loader_sql.SqlSource`, with a pool of one and a deadline of its own."""

    async def query(
        self, asked: Executable, parameters: Mapping[str, object] | None = None
    ) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """The names of the columns, and the rows. Raises Unavailable or Faulty."""
        ...

    async def inspect(self, what: Callable[[Connection], T]) -> T:
        """What a function finds on one connection. Raises as `query`."""
        ...

    async def close(self) -> None:
        """Closes the connections; the next call opens new ones."""
        ...
