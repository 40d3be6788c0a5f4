"""The shop's database: one table in SQLite, its readers, and the back office that changes prices all the time.

`main` builds it and runs the back office as a thread. Every application opens a `Database` of its own. The back office notes
each commit in the ledger, by which reads are judged.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cacheupdater.demo import plan
from cacheupdater.demo.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Product: TypeAlias = "dict[str, int]"

_BUSY_TIMEOUT_S = 5.0  # readers never wait in WAL mode; there is one writer


class Change(NamedTuple):
    """A price that has changed. Times are those of time.monotonic(), which all processes of a machine share."""

    product: int
    version: int
    committed: float
    announced: float  # when `invalidate` had returned


class Database:
    """One application's connection. A statement reads one product."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)

    def product(self, number: int) -> Product:
        """The row as it is now."""
        statement = "SELECT id, version, price FROM products WHERE id = ?"
        found, version, price = self._connection.execute(statement, (number,)).fetchone()
        return {"id": found, "version": version, "price": price}

    def close(self) -> None:
        self._connection.close()


def build(path: Path) -> None:
    """A shop with all products at version 1."""
    rows = [(number, 1, 100 * number) for number in range(1, plan.PRODUCTS + 1)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")  # writer and readers do not stop each other
        connection.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, version INTEGER, price INTEGER)")
        connection.executemany("INSERT INTO products VALUES (?, ?, ?)", rows)


class BackOffice(threading.Thread):
    """Again and again: changes a price, commits, notes the commit, announces the change."""

    def __init__(
        self,
        path: Path,
        seed: int,
        *,
        committed: Callable[[int, int, float], None],
        announce: Callable[[int], None],
        follow: Callable[[Change], None],
    ) -> None:
        super().__init__(name="back-office", daemon=True)
        self._path = path
        self._catalogue = Catalogue(seed)
        self._random = Random(seed)
        self.hot = True  # whether the hottest products change too
        self._committed = committed
        self._announce = announce
        self._follow = follow
        self._stopping = threading.Event()
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Ends the thread after the present change."""
        self._stopping.set()
        if self.is_alive():
            self.join(plan.EOF_TIMEOUT_S)

    def run(self) -> None:
        """Runs until `stop`. An error is kept for the conductor."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S)) as connection:
                connection.execute("PRAGMA synchronous = OFF")  # this shop need not survive a power cut
                while not self._stopping.wait(self._random.expovariate(plan.CHANGES_PER_S)):
                    self._change(connection)
        except Exception as e:  # noqa: BLE001  the conductor raises it
            self.failure = e

    def _change(self, connection: sqlite3.Connection) -> None:
        number = self._catalogue.changing(self._random, hot=self.hot)
        with connection:
            price = self._random.randint(100, 99_999)
            statement = "UPDATE products SET version = version + 1, price = ? WHERE id = ? RETURNING version"
            ((version,),) = connection.execute(statement, (price, number)).fetchall()
        committed = time.monotonic()
        self._committed(number, version, committed)
        self._announce(number)
        self._follow(Change(number, version, committed, time.monotonic()))
