"""Which words of a driver's error may be told: those that cannot hold a value of a row or of a key.

`drivers` asks once per error, and puts the answer behind the error's type and code, which are always told. Databases
quote what they choke on: `invalid input syntax for type uuid: "…"`, `syntax error in tsquery: "…"`, the message of a
`RAISE` under any code. So a text is told only if its kind is on a list here, and whatever else is kept back.
"""

from __future__ import annotations

import re
import ssl
from socket import gaierror
from typing import TYPE_CHECKING

from cacheupdater import masking

if TYPE_CHECKING:
    import sqlite3

# --- PostgreSQL ---------------------------------------------------------------------------------------------

# Of the statement's text, when the parser raises them: syntax, names that do not exist or are ambiguous, types that do
# not fit, groups, recursion, windows, collations. A function that runs may raise each of them about a value.
_PARSER = re.compile(
    r"42(601|602|611|622|70[1-4]|712|725|80[349]|830|846|883|939|P0[1289]|P10|P1[89]|P2[0-2])"
)
# Of the address, when a connection is refused: user and database, full or shutting down
_LOGIN = {
    "28P01": "the user or the password is not right",
    "28": "the server does not let this user in from here (its role, or a rule of pg_hba.conf)",
    "3D000": "there is no database of this name",
    "53300": "the server has no connection left for this user",
    "57P03": "the server is starting up or shutting down",
    "42501": "this user may not connect to this database",
}
_NO_TLS = "rejected SSL upgrade"  # asyncpg's own words, before anything but the wish for TLS was sent
_CERTIFICATE = "connection requires a valid client certificate"
_PARAMETER = re.compile(r"unsupported startup parameter(?: in options)?: [a-z_]{1,40}$")
# Texts that are always the same, whoever raises them
_ALWAYS = frozenset(
    {
        "canceling statement due to lock timeout",
        "canceling statement due to statement timeout",
        "canceling statement due to user request",
        "deadlock detected",
        "terminating connection due to administrator command",
        "the database system is shutting down",
        "the database system is starting up",
    }
)
_RIGHTS = "aclcheck_error"  # the server's own function that says `permission denied for table products`


def of_postgres(error: BaseException, code: str, *, connecting: bool) -> str:
    """The server's message, or an empty text. What ran inside a function has a context; a RAISE is one of these."""
    text = str(error.args[0]) if code else ""
    if text in _ALWAYS:
        return text
    if not code or _said(error, "context") or _said(error, "internal_query"):
        return ""
    if connecting:
        return _of_login(code, text)
    # only the parser points into the statement
    parsed = _PARSER.fullmatch(code) is not None and _said(error, "position") != ""
    known = parsed or (code == "42501" and _said(error, "server_source_function") == _RIGHTS)
    return masking.foreign(text) if known else ""


def _of_login(code: str, text: str) -> str:
    """What a refused login means, in our own words: the server's name the user, and cut long ones."""
    parameter = _PARAMETER.match(text)
    if parameter:  # pgbouncer, of what we ask of every connection
        return parameter[0]
    if code == "28000" and text == _CERTIFICATE:
        return text
    said = next((said for begin, said in _LOGIN.items() if code.startswith(begin)), "")
    how = next(
        (
            how
            for how in (", no encryption", ", SSL encryption", ", SSL on", ", SSL off")
            if text.endswith(how)
        ),
        "",
    )
    return said + (f"{how}" if code == "28000" else "")


def of_unknown_host(error: BaseException, host: str) -> str:
    """What to do where the name of a host leads nowhere; empty for another error. It is an outage like any other: a name
    may come back, as that of a server which is being replaced."""
    while error.__cause__ is not None and not isinstance(error, gaierror):
        error = error.__cause__
    if not isinstance(error, gaierror):
        return ""
    return (
        f"host {host!r} has no address: compare it with the source's url, and ask this machine's name server"
    )


def of_tls(error: BaseException) -> str:
    """What to do where a connection could not be encrypted as it was asked for; empty for another error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate cannot be trusted ({error.verify_message});"
            " name its authority by ca, and the server in url as its certificate does"
        )
    if isinstance(error, ssl.SSLError):
        why = (error.reason or "no reason given").lower().replace("_", " ")
        return f"the server ends TLS ({why}): are ca, cert and key those that it wants?"
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return (
            "the server offers no TLS, and nothing was sent to it without:"
            " turn it on there (ssl = on), or write tls: off beside url where everybody on the way may read along"
        )
    return ""


def _said(error: BaseException, field: str) -> str:
    """A field of the server's message, as asyncpg keeps it."""
    return str(getattr(error, field, None) or "")


# --- SQLite -------------------------------------------------------------------------------------------------

_CONSTANT = frozenset(
    {
        "attempt to write a readonly database",
        "database disk image is malformed",
        "database is locked",
        "database or disk is full",
        "database table is locked",
        "disk I/O error",
        "file is not a database",
        "incomplete input",
        "integer overflow",
        "interrupted",
        "locking protocol",
        "malformed JSON",
        "out of memory",
        "too many SQL variables",
        "unable to open database file",
        "You can only execute one statement at a time.",
    }
)
"""Texts that are always the same."""

# What stands in their place is told if the statement's text holds it: a full-text search quotes words of its rows so.
_QUOTING = re.compile(
    r'no such (?:table|column|function|index|module|collation sequence): "?(?P<name>[^"]+)"?'
    r"(?: - should this be a string literal in single-quotes\?)?"
    r'|near "(?P<near>.+)": syntax error'
    r'|unrecognized token: "(?P<token>.+)"'
    r"|ambiguous column name: (?P<ambiguous>.+)"
    r"|wrong number of arguments to function (?P<function>.+)\(\)",
    re.DOTALL,
)
_NOT_UTF8 = re.compile(r"Could not decode to UTF-8 column '(\w+)' with text '")


def of_sqlite(error: sqlite3.Error, statement: str) -> str:
    """SQLite's message, or what of it can be told, or an empty text."""
    text = str(error)
    undecodable = _NOT_UTF8.match(text)
    if undecodable:  # it goes on with the text itself
        return f"column {undecodable[1]!r} holds text that is not UTF-8"
    quoting = _QUOTING.fullmatch(text)
    known = text in _CONSTANT or (
        quoting is not None and all(part in statement for part in quoting.groups() if part)
    )
    return text if known else ""
