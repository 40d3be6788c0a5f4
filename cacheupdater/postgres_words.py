"""What PostgreSQL's codes and failed connections mean, in words that quote no row and no user.

The adapters that talk to PostgreSQL build their errors of these words: `depot_sql`, `feed_notify`, `feed_replication`. Each adds
what concerns it alone. The reasons of failed loads are in `loader_sql.safe_errors`, for other databases too. Pure data.
"""

from __future__ import annotations

import ssl
from itertools import chain
from socket import gaierror
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# By the beginning of the code; the first that fits counts
FOR_NOW: Mapping[str, str] = {
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
    "55P03": "others hold the same rows",
}


_LOGIN = ("28", "3D")  # which waiting does not cure, though it is tried again: a person may mend it meanwhile


def does(code: str) -> str:
    """What the server does if it answers with this code of `FOR_NOW`."""
    return "refuses the login" if code.startswith(_LOGIN) else "cannot answer now"


def for_now(code: str, further: Mapping[str, str]) -> str:
    """Why the server cannot answer now; empty if the code says something else. `further` words count first."""
    words = chain(further.items(), FOR_NOW.items())
    return next((why for begin, why in words if code.startswith(begin)), "")


def unreached(error: BaseException, tls_off: str) -> str:
    """Why there is no connection, for errors that are not the server's own; empty for any other.

    `tls_off` says where encryption is turned off.
    """
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
        return f"it offers no TLS: turn it on there, or write {tls_off}"
    return ""
