"""What `check --connect` finds, and how an error becomes a finding. `connection_check` and `feed_check` fill it.

A running updater waits until somebody corrects a wrong password; here a person waits for the result. So the words of the servers decide
whether a person must act.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias
from uuid import UUID

from cacheupdater import masking
from cacheupdater.errors import CacheUpdaterError, Unavailable

if TYPE_CHECKING:
    from cacheupdater_client.protocol.patterns import Capture, CaptureType

State: TypeAlias = Literal["ok", "note", "away", "wrong"]
"""It works; it works, with something worth knowing; it cannot be reached now; a person must change something."""

# Words of Redis, PostgreSQL, SQLite and TLS for errors that waiting does not cure
REFUSED = re.compile(
    r"\b(NOPERM|NOAUTH|WRONGPASS|MISCONF|READONLY|28000|28P01|3D000|InvalidPassword|AuthenticationError)"
    r"|no permission|can't run this command|invalid username-password|user is disabled|without any password|refuses the login"
    r"|unable to open database file|Authentication required|offers no TLS|certificate cannot be trusted|ends TLS|CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|SSLError",
    re.IGNORECASE,
)

# Captures that no application has: none numbers its rows from the least smallint, which fits into a column of any size, and this
# UUID was drawn for this purpose
NOBODY: dict[CaptureType, Capture] = {
    int: -(2**15) + 1,
    str: "cacheupdater-check",
    UUID: UUID("5f2b6c1e-93d4-4b7a-8e0f-c41d7a9be356"),
}


class Finding(NamedTuple):
    """The result for one part."""

    part: str
    name: str  # of the source or namespace
    state: State
    what: str


def trouble(part: str, name: str, error: CacheUpdaterError) -> Finding:
    """The finding that this error makes."""
    away = isinstance(error, Unavailable) and not REFUSED.search(str(error))
    return Finding(part, name, "away" if away else "wrong", plain(str(error)))


def plain(text: str) -> str:
    """The text in one line, without passwords."""
    return masking.text(" ".join(text.split()))
