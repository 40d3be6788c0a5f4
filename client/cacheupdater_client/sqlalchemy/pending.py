"""What one transaction of a session has changed so far, by savepoint.

`hooks` makes a `Pending` when a session begins a transaction, and drops it when the transaction ends. A rolled-back savepoint
takes back its own part and nothing else. A `Pending` never outlives the session's transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater_client.watching.keys import Keys

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import InstanceState, SessionTransaction

    from cacheupdater_client.watching.keys import Mark

Identity: TypeAlias = tuple[object, ...]
"""The primary key of a row."""


@dataclass(slots=True)
class Flush:
    """What one flush is about to do, and what it has done."""

    before: list[bytes] = field(default_factory=list)  # keys of the rows as they were
    asked: set[InstanceState[object]] = field(default_factory=set)  # objects whose rows were asked for
    saved: list[object] = field(default_factory=list)
    deleted: list[object] = field(default_factory=list)


@dataclass(slots=True)
class Pending:
    """One transaction."""

    keys: Keys = field(default_factory=Keys)
    savepoints: list[tuple[SessionTransaction, Mark]] = field(default_factory=list)
    flush: Flush = field(default_factory=Flush)
    connections: list[Connection] = field(default_factory=list)
    aborted: bool = False  # an error has ended it in the database: its COMMIT is a rollback
    committing: bool = False  # COMMIT may have been sent
    committed: bool = False

    def begin(self, savepoint: SessionTransaction) -> None:
        """A savepoint begins."""
        self.savepoints.append((savepoint, self.keys.mark()))

    def release(self, savepoint: SessionTransaction) -> None:
        """The savepoint was released: its changes belong to what surrounds it."""
        self.savepoints = [each for each in self.savepoints if each[0] is not savepoint]

    def end(self, savepoint: SessionTransaction) -> None:
        """The savepoint is over. If it was not released, its changes were rolled back."""
        for at, (each, mark) in enumerate(self.savepoints):
            if each is savepoint:
                self.keys.back_to(mark)
                del self.savepoints[at:]
                return
