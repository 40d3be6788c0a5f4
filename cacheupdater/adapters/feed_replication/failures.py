"""What the errors of PostgreSQL and of psycopg2 mean to a caller: try again, or a person must act.

`connections`, `stream` and `slot` raise through `of_server`. The server's texts may quote rows and users. So our errors have
words of our own, and of the driver's only type and code. Nothing here waits or remembers.
"""

from __future__ import annotations

import re

from cacheupdater.errors import CacheUpdaterError, Faulty, Misconfigured, Unavailable
from cacheupdater.postgres_words import does, for_now

_OURS = {
    "53300": "it has no connection or no WAL sender left",
    "55006": "the slot is read by another process",
}
# libpq gives no code for an error while it connects, but the server's text. First what only a person can mend
_REFUSED = {
    r"must be superuser or replication role|permission denied to start WAL sender": (
        "the user may not replicate: ALTER ROLE … REPLICATION, or GRANT rds_replication TO …"
    ),
    r"database \".*\" does not exist": "there is no database of this name",
}
_LOGIN = {
    r"password authentication failed|no password supplied": "the user or the password is not right",
    r"no pg_hba.conf entry": "the server does not let this user in from here (a rule of pg_hba.conf)",
    r"role \".*\" does not exist": "the user or the password is not right",
}
_UNREACHED = {
    r"number of requested standby connections|too many (?:clients|connections)|remaining connection slots": (
        "it has no connection or no WAL sender left"
    ),
    r"does not support SSL": "it offers no TLS: turn it on there, or write tls: off beside url",
    r"certificate verify failed|does not match host name": (
        "its certificate cannot be trusted: name its authority by ca, and the server in url as its certificate does"
    ),
    r"requires a valid client certificate": "it wants a certificate of ours: name it by cert, and its key by key",
    r"private key file": "the file of `key` may be read by others: make it 0600",
    r"starting up|shutting down": "it is starting up or shutting down",
    r"Connection refused": "nobody listens there",
    r"could not translate host name": "its host has no address: ask this machine's name server",
    r"closed the connection|connection has been closed|connection already closed": "the connection was lost",
    r"timeout expired": "it did not answer in time",
}
UNDEFINED = "42704"  # no such slot, or no such publication
IN_USE = "55006"  # another process reads the slot
EXISTS = "42710"
_NOT_READY = "55000"
_SLOT_GONE = re.compile(
    r"can(?:not| no longer) (?:get changes from|read from|access)(?: logical)? replication slot|invalidated"
    r"|requested WAL segment .* has already been removed"
)


def code(error: BaseException) -> str:
    """PostgreSQL's code of the error, or nothing."""
    return str(getattr(error, "pgcode", None) or "")


def lost_slot(error: BaseException) -> bool:
    """Whether the error says that the slot cannot tell what comes next, and never will."""
    missing = code(error) == UNDEFINED and "replication slot" in str(error)
    return missing or _SLOT_GONE.search(str(error)) is not None


def lost_publication(error: BaseException) -> bool:
    """Whether the slot stands at a place in the WAL where the publication did not exist."""
    return code(error) == UNDEFINED and "publication" in str(error)


def of_server(error: BaseException, *, command: str = "install") -> CacheUpdaterError:
    """Our error for one of psycopg2's. `command` of `changes` shows the statements that the user may not run."""
    what = f"{type(error).__name__} {code(error)}".strip()
    if code(error) == "42501":
        return Misconfigured(
            f"the user lacks a right ({what}): `cacheupdater changes {command} --print` shows the statements for one who has it"
        )
    if code(error) == _NOT_READY:
        return Misconfigured(
            f"the database is not ready for logical replication ({what}): `cacheupdater check --connect` says what is missing"
        )
    if why := for_now(code(error), _OURS):
        return Unavailable(f"the database {does(code(error))}: {why} ({what})")
    if code(error):
        return Faulty(f"the database refuses a statement of the feed: {what}")
    return _without_code(str(error), what)


def _without_code(text: str, what: str) -> CacheUpdaterError:
    for pattern, why in _REFUSED.items():
        if re.search(pattern, text):
            return Misconfigured(f"changes cannot be read: {why}")
    for pattern, why in _LOGIN.items():
        if re.search(pattern, text):
            return Unavailable(f"the database refuses the login: {why}")
    why = next((why for pattern, why in _UNREACHED.items() if re.search(pattern, text)), "")
    return Unavailable(f"the database cannot be reached: {why or what}")
