"""What the errors of PostgreSQL and of asyncpg mean to a caller: try again, or a person must act.

`settings`, `feed` and `installation` raise through `of_server`. The server's texts may quote rows and users. So our errors have
words of our own, and of the driver's only type and code. Nothing here waits or remembers.
"""

from __future__ import annotations

import asyncpg

from cacheupdater.errors import CacheUpdaterError, Faulty, Misconfigured, Unavailable
from cacheupdater.postgres_words import does, for_now, unreached

# InternalClientError is no InterfaceError. It comes if the server has said its last word, and the end of the connection is late
FOREIGN = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_OURS = {"55P03": "others hold the same table for longer than this waits"}
_GONE = ("42P01", "42703", "3F000", "42883")


def of_server(error: BaseException, *, command: str = "install") -> CacheUpdaterError:
    """Our error for one of asyncpg's, or of the system's. `command` of `changes` shows the statements that the user may not run."""
    code = str(getattr(error, "sqlstate", None) or "")
    what = f"{type(error).__name__} {code}".strip()
    if code == "42501":
        return Misconfigured(
            f"the user lacks a right ({what}): `cacheupdater changes {command} --print` shows the statements for one who has it"
        )
    if code in _GONE:
        return Misconfigured(
            f"the outbox or a trigger is missing or changed ({what}): run `cacheupdater changes install`"
        )
    if why := for_now(code, _OURS):
        return Unavailable(f"the database {does(code)}: {why} ({what})")
    if code:
        return Faulty(f"the database refuses a statement of the feed: {what}")
    why = unreached(error, "tls: off beside url")
    return Unavailable(f"the database cannot be reached: {why or what}")
