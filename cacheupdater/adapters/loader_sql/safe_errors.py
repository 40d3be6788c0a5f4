"""Which texts of a driver's errors may be shown: those that cannot hold a value of a row or of a key.

`drivers` calls these functions once per error. It puts the result behind the error's type and code, which are always shown.
Databases quote the values at fault: `invalid input syntax for type uuid: "…"`, `syntax error in tsquery: "…"`, the message of
a `RAISE` under any code. So a text is shown only if its kind is on a list here, and every other text is kept back.
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

# Errors about the statement's text, if the parser raises them: syntax, names that do not exist or are ambiguous, types
# that do not fit, groups, recursion, windows, collations. A function that runs may raise each of them about a value.
_PARSER = re.compile(
    r"42(601|602|611|622|70[1-4]|712|725|80[349]|830|846|883|939|P0[1289]|P10|P1[89]|P2[0-2])"
)
# Errors of a refused connection: about user and database, or a server that is full or shutting down
_LOGIN = {
    "28P01": "the user or the password is not right",
    "28": "the server does not let this user in from here (its role, or a rule of pg_hba.conf)",
    "3D000": "there is no database of this name",
    "53300": "the server has no connection left for this user",
    "57P03": "the server is starting up or shutting down",
    "42501": "this user may not connect to this database",
}
_NO_TLS = "rejected SSL upgrade"  # asyncpg's own words, when it has sent nothing but the request for TLS
_CERTIFICATE = "connection requires a valid client certificate"
_PARAMETER = re.compile(r"unsupported startup parameter(?: in options)?: [a-z_]{1,40}$")
# Texts that are always the same, in all errors
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
# A capture is compared with a column of another type
_UNLIKE = re.compile(r"operator does not exist: (?P<column>[\w ]+) = (?:text|bigint|uuid)")
_CAPTURES = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric"), "int"),
    **dict.fromkeys(("text", "character varying", "character"), "str"),
    "uuid": "uuid",
}
"""The type of a capture that a column can be compared with."""
_RIGHTS = "aclcheck_error"  # the server's own function that raises `permission denied for table products`


def of_postgres(error: BaseException, code: str, *, connecting: bool) -> str:
    """The server's message if it may be shown, else empty. An error from inside a function, such as a RAISE, has a context."""
    text = str(error.args[0]) if code else ""
    if text in _ALWAYS:
        return text
    if not code or _said(error, "context") or _said(error, "internal_query"):
        return ""
    if connecting:
        return _of_login(code, text)
    # only errors of the parser have a position in the statement
    parsed = _PARSER.fullmatch(code) is not None and _said(error, "position") != ""
    known = parsed or (code == "42501" and _said(error, "server_source_function") == _RIGHTS)
    return masking.foreign(text) + _of_types(text) if known else ""


def _of_types(text: str) -> str:
    """What to do if a capture is of another type than its column; empty for any other error."""
    unlike = _UNLIKE.fullmatch(text)
    if unlike is None:
        return ""
    cast = "cast one of both in the statement"
    fitting = _CAPTURES.get(unlike["column"])
    if fitting is None:
        return f"; {cast}"
    return f"; if that is a capture, give it the type `{fitting}` in `key`, else {cast}"


def _of_login(code: str, text: str) -> str:
    """The meaning of a refused login, in our own words: the server's words name the user, and cut long names."""
    parameter = _PARAMETER.match(text)
    if parameter:  # pgbouncer, about a setting that we send with every connection
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
    """What to do if a host's name has no address; empty for any other error.

    This is an outage like any other: a name may come back, such as the name of a server that is being replaced.
    """
    while error.__cause__ is not None and not isinstance(error, gaierror):
        error = error.__cause__
    if not isinstance(error, gaierror):
        return ""
    return (
        f"host {host!r} has no address: compare it with the source's url, and ask this machine's name server"
    )


def of_tls(error: BaseException) -> str:
    """What to do if a connection could not be encrypted as the settings say; empty for any other error."""
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

# A quoted name is shown only if the statement's text holds it: a full-text search quotes words of its rows in this form.
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
    """SQLite's message, or the part of it that may be shown, or an empty text."""
    text = str(error)
    undecodable = _NOT_UTF8.match(text)
    if undecodable:  # the rest of the message is the column's text
        return f"column {undecodable[1]!r} holds text that is not UTF-8"
    quoting = _QUOTING.fullmatch(text)
    known = text in _CONSTANT or (
        quoting is not None and all(part in statement for part in quoting.groups() if part)
    )
    return text if known else ""
