"""What the errors of the depot's databases mean to a caller: try again, or a person must act.

`postgres_server` and `sqlite` raise through these functions. A driver's text may quote users and values, so our errors have words
of our own, and of the driver's only type and code. Nothing here waits or remembers.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from cacheupdater.errors import CacheUpdaterError, Faulty, Forbidden, Misconfigured, Unavailable
from cacheupdater.postgres_words import does, for_now, unreached

if TYPE_CHECKING:
    from cacheupdater.core.depot_url import Address

_OURS = {"25P03": "this process was held up in the middle of its work"}
_GONE = {
    "42P01": "a table is missing",
    "42703": "a column is missing",
    "3F000": "there is no such schema",
}


def of_postgres(error: BaseException, address: Address) -> CacheUpdaterError:
    """Our error for one of asyncpg's, or of the system's."""
    code = str(getattr(error, "sqlstate", None) or "")
    what = f"{type(error).__name__} {code}".strip()
    if code == "42501":
        return Forbidden(
            f"this user has no permission to use {address} ({what}): GRANT SELECT, INSERT, UPDATE, DELETE on them to the user,"
            " or CREATE on their schema where they are not made yet"
        )
    if code in _GONE:
        return Misconfigured(f"{address} cannot be used, {_GONE[code]} ({what}): restart the updaters")
    if why := for_now(code, _OURS):
        return Unavailable(f"the queue's database {does(code)}: {why} ({what})")
    if code:
        return Faulty(f"the queue's database refuses a statement: {what}")
    why = unreached(error, "tls=off into the queue's url")
    return Unavailable(f"the queue's database cannot be reached: {why or what}")


# By SQLite's code without its extension
_NOT_NOW = {
    sqlite3.SQLITE_BUSY: "another process holds it for too long",
    sqlite3.SQLITE_LOCKED: "another connection holds it",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_INTERRUPT: "the statement was ended",
    sqlite3.SQLITE_IOERR: "its disk fails",
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_PROTOCOL: "its locks fail",
}
_NEVER = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: let the updater's user write to the file and its folder",
    sqlite3.SQLITE_READONLY: "cannot be written: let the updater's user write to the file and its folder",
    sqlite3.SQLITE_PERM: "cannot be written: let the updater's user write to the file and its folder",
    sqlite3.SQLITE_NOTADB: "is no SQLite database: name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged: move it away; the hints in it are lost, and a new one is made",
}


def of_sqlite(error: sqlite3.Error, path: str) -> CacheUpdaterError:
    """Our error for one of the sqlite3 module's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    what = f"{type(error).__name__} {getattr(error, 'sqlite_errorname', '')}".strip()
    if code in _NOT_NOW:
        return Unavailable(f"the file {path} cannot be used now: {_NOT_NOW[code]} ({what})")
    if code in _NEVER:
        return Misconfigured(f"the file {path} {_NEVER[code]} ({what})")
    return Faulty(f"the file {path} refuses a statement: {what}")
