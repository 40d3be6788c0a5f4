"""What the errors of PostgreSQL and of asyncpg mean to a caller: try again, or a person must act.

`settings`, `feed` and `installation` raise through `of_server`. The server's texts may quote rows and users. So our errors have
words of our own, and of the driver's only type and code. Nothing here waits or remembers.
"""

from __future__ import annotations

import ssl
from socket import gaierror

import asyncpg

from cacheupdater.errors import CacheUpdaterError, Faulty, Misconfigured, Unavailable

# InternalClientError is no InterfaceError. It comes if the server has said its last word, and the end of the connection is late
FOREIGN = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# By the beginning of PostgreSQL's code; the first that fits counts
_FOR_NOW = {
    "28P01": "the user or the password is not right",
    "28": "the server does not let this user in from here (its role, or a rule of pg_hba.conf)",
    "3D": "there is no database of this name",
    "53100": "its disk is full",
    "53300": "it has no connection left for this user",
    "57P03": "it is starting up or shutting down",
    "57014": "it did not answer in time, or a person ended the statement",
    "25006": "it is read-only: a replica, or a primary that is being moved",
    "08": "the connection was lost",
    "53": "it is out of resources",
    "57": "it has ended the connection, or is shutting down",
    "58": "its disk or its system fails",
    "40": "others changed the same rows",
    "55P03": "others hold the same table for longer than this waits",
}
_GONE = ("42P01", "42703", "3F000", "42883")


def of_server(error: BaseException) -> CacheUpdaterError:
    """Our error for one of asyncpg's, or of the system's."""
    code = str(getattr(error, "sqlstate", None) or "")
    what = f"{type(error).__name__} {code}".strip()
    if code == "42501":
        return Misconfigured(
            f"the user lacks a right ({what}): `cacheupdater changes install --print` shows the statements for one who has it"
        )
    if code in _GONE:
        return Misconfigured(
            f"the outbox or a trigger is missing or changed ({what}): run `cacheupdater changes install`"
        )
    if why := next((why for begin, why in _FOR_NOW.items() if code.startswith(begin)), ""):
        return Unavailable(f"the database cannot answer now: {why} ({what})")
    if code:
        return Faulty(f"the database refuses a statement of the feed: {what}")
    return Unavailable(f"the database cannot be reached: {_unreached(error) or what}")


def _unreached(error: BaseException) -> str:
    """Why there is no connection, for errors that are not the server's own; empty for any other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate cannot be trusted ({error.verify_message}): name its authority by ca,"
            " and the server in url as its certificate does"
        )
    if isinstance(error, gaierror):
        return "its host has no address: ask this machine's name server"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if "rejected SSL upgrade" in str(error):
        return "it offers no TLS: turn it on there, or write tls: off beside url"
    return ""
