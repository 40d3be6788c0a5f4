"""The file of a depot in SQLite: makes it, opens it, and runs work on it in one thread.

`SqliteDepot` makes one `DatabaseFile`. SQLite blocks while it waits for a disk or for another process, so nothing here runs in the
event loop. Work whose caller was cancelled runs to its end. The file is readable by its owner only. The journal is a write-ahead
log, which needs memory that all processes share: the file must lie on a disk of this machine, not on a network's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, TypeVar

from cacheupdater.adapters.depot_sql import sqlite_statements as sql
from cacheupdater.adapters.depot_sql.failures import of_sqlite
from cacheupdater.errors import Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

BUSY_S = 2.0  # seconds to wait for another process' transaction; each takes milliseconds
AGAIN_S = 0.005  # seconds between two tries where SQLite itself does not wait
JOURNAL_BYTES = 64 * 1024 * 1024  # what is left of the write-ahead log after a peak
OLDEST = (3, 35, 0)  # the first SQLite with RETURNING
_FOR_NOW = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EINTR}


class DatabaseFile:
    """One connection to the file. Opened by the first work; not opened again after `close`."""

    def __init__(self, path: str) -> None:
        """Raises Misconfigured if this Python's SQLite is too old."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise Misconfigured(
                f"a queue in SQLite needs SQLite {'.'.join(map(str, OLDEST))} or newer; this is {sqlite3.sqlite_version}"
            )
        self._path = path
        self._thread = ThreadPoolExecutor(1, "depot")
        self._open: sqlite3.Connection | None = None  # used in the thread only
        self._closed = False

    def exists(self) -> bool:
        """Whether anybody has made the file."""
        return Path(self._path).exists()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs this work, which changes nothing."""
        return await self._in_thread(work)

    async def write(self, work: Callable[[sqlite3.Connection], T], *, on_disk: bool = False) -> T:
        """Runs this work as one transaction. `on_disk`: it survives a loss of power once this returns.

        Without `on_disk` it survives the death of any process, and a loss of power may undo it.
        """

        def transaction(connection: sqlite3.Connection) -> T:
            connection.execute(f"PRAGMA synchronous = {'FULL' if on_disk else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

        return await self._in_thread(transaction)

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise Unavailable(f"the file {self._path} is closed: this process is shutting down")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._open is None:
                self._open = self._opened()
            return work(self._open)
        except sqlite3.Error as e:
            raise of_sqlite(e, self._path) from None

    def _opened(self) -> sqlite3.Connection:
        self._make()
        connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        try:
            self._refuse_foreign(connection)
            _use_a_log(connection)
            connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        """A database of another program is not even turned into one with a write-ahead log."""
        [tables] = connection.execute(sql.TABLES).fetchone()
        [mark] = connection.execute("PRAGMA application_id").fetchone()
        if tables and mark != sql.APPLICATION:
            raise Misconfigured(
                f"the file {self._path} is the database of another program: name another file"
            )

    def _make(self) -> None:
        """An empty file for nobody else to read; SQLite gives its rights to the files beside it."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as e:
            why = os.strerror(e.errno or 0)
            if e.errno in _FOR_NOW:
                raise Unavailable(f"the file {self._path} cannot be opened now: {why}") from None
            raise _unwritable(self._path, why) from None

    async def close(self) -> None:
        """Waits for the work that runs, and closes the connection."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=False)

    def _end(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def refuse_unwritable(path: str) -> None:
    """Raises Misconfigured if no updater of this user can use the file. Leaves nothing behind."""
    file = Path(path)
    try:
        if file.exists():
            os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC))
        with NamedTemporaryFile(dir=file.parent, prefix=f"{file.name}.probe-"):
            pass  # SQLite makes files beside its own
    except OSError as e:
        if e.errno not in _FOR_NOW:
            raise _unwritable(path, os.strerror(e.errno or 0)) from None


def _unwritable(path: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"the file {path} cannot be written ({why}): make its folder, and let the updater's user write to both"
    )


def _use_a_log(connection: sqlite3.Connection) -> None:
    """From now on the file has a write-ahead log. SQLite does not wait here for processes that open the same new file."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as e:
            if e.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)
        else:
            return
