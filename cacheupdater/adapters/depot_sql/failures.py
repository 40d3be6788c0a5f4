"""What the errors of the depot's databases mean to a caller: try again, or a person must act.

`postgres_server` and `sqlite` raise through these functions. A driver's text may quote users and values, so our errors have words
of our own, and of the driver's only type and code. Nothing here waits or remembers.
"""

from __future__ import annotations

import sqlite3
import ssl
from socket import gaierror
from typing import TYPE_CHECKING

from cacheupdater.errors import CacheUpdaterError, Faulty, Forbidden, Misconfigured, Unavailable

if TYPE_CHECKING:
    from cacheupdater.core.depot_url import Address

# By the beginning of PostgreSQL's code; the first that fits counts
_FOR_NOW = {
    "28P01": "the user or the password is not right",
    "28": "the server does not let this user in from here (its role, or a rule of pg_hba.conf)",
    "3D": "there is no database of this name",
    "53100": "its disk is full",
    "53300": "it has no connection left for this user",
    "57P03": "it is starting up or shutting down",
    "25006": "it is read-only: a replica, or a primary that is being moved",
    "08": "the connection was lost",
    "53": "it is out of resources",
    "57": "it has ended the statement, or is shutting down",
    "58": "its disk or its system fails",
    "40": "others changed the same rows",
    "55P03": "others hold the same rows",
    "25P03": "this process was held up in the middle of its work",
}
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
    if why := next((why for begin, why in _FOR_NOW.items() if code.startswith(begin)), ""):
        return Unavailable(f"the queue's database cannot answer now: {why} ({what})")
    if code:
        return Faulty(f"the queue's database refuses a statement: {what}")
    return Unavailable(_unreached(error) or f"the queue's database cannot be reached: {what}")


def _unreached(error: BaseException) -> str:
    """Why there is no connection, for errors that are not the server's own; empty for any other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate cannot be trusted ({error.verify_message}): name its authority by ca"
        )
    if isinstance(error, gaierror):
        return "the host of the queue's url has no address: ask this machine's name server"
    if isinstance(error, TimeoutError):
        return "the queue's database did not answer in time"
    if "rejected SSL upgrade" in str(error):
        return "the server offers no TLS: turn it on there, or write tls=off into the queue's url"
    return ""


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
