"""What a source's URL says, read as SQLAlchemy reads it: the database, its hosts, whether it holds a password.

The configuration checks a URL with this module, and learns from it what leaves the machine. The options of PostgreSQL are
known, so that an option of libpq is refused with what to write instead. Pure text: nothing is looked up, and no message
repeats the URL.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from cacheupdater.core.hosts import is_local

_OPTIONS = {
    "host": "several servers, or a socket's folder",
    "port": "of such a host",
    "user": "beside the URL's own",
    "password": "as user",
    "passfile": "a file of passwords",
    "target_session_attrs": "which of several servers",
    "krbsrvname": "Kerberos",
    "gsslib": "Kerberos",
    "prepared_statement_cache_size": "per connection",
}
_TLS = "how a connection is encrypted is said beside url: `tls: verify` with `ca: FILE`, `cert: FILE` and `key: FILE`, `tls: on`, or `tls: off`"
_INSTEAD = {
    "sslmode": "sslmode: " + _TLS,
    "ssl": "ssl: " + _TLS,
    "sslrootcert": "sslrootcert: write `ca: FILE` beside url",
    "sslcert": "sslcert: write `cert: FILE` beside url",
    "sslkey": "sslkey: write `key: FILE` beside url",
    "sslpassword": "sslpassword: write a `key: FILE` that has no password beside url",
    "connect_timeout": "connect_timeout: write `statement_timeout: 1s` beside url, which is for connecting too",
    "application_name": "application_name: it is always cacheupdater",
    "options": "options: set what a connection needs as a default of the database's user (ALTER ROLE … SET …)",
}


_MYSQL = "drivers of MySQL and MariaDB go on in plain text where a server says that it has no TLS, so none can be promised"
UNENCRYPTED = {"sqlite": "an SQLite file has no connection", "mysql": _MYSQL, "mariadb": _MYSQL}
"""Databases whose connections cannot be encrypted for certain, and why."""


class Parts(NamedTuple):
    database: str  # postgresql, mysql, mariadb or sqlite
    hosts: tuple[str, ...]  # empty: wherever the driver looks by itself
    has_password: bool
    options: tuple[str, ...]

    @property
    def local(self) -> bool:
        """Whether all hosts are this machine, for certain."""
        return self.database == "sqlite" or (bool(self.hosts) and all(map(is_local, self.hosts)))


def parts(url: str) -> Parts:
    """The parts of a URL that `masking.ambiguity` accepts."""
    scheme, _, rest = url.partition("://")
    before, _, tail = rest.rpartition("@")
    where, _, query = tail.partition("?")
    host = re.match(r"\[[^\]]*\]|[^:/]*", where)
    options = parse_qsl(query, keep_blank_values=True)
    said = dict(options)
    named = [each for name, value in options if name == "host" for each in value.split(",")]
    hosts = [_without_port(each) for each in named]
    first = unquote(host[0]) if host else ""
    return Parts(
        "postgresql" if scheme.startswith("postgres") else scheme.partition("+")[0],
        tuple(hosts) or ((first,) if first else ()),
        bool(before.partition(":")[2] or said.get("password") or said.get("passfile")),
        tuple(name for name, _ in options),
    )


def _without_port(said: str) -> str:
    """With several hosts each may bring its port; a path has none, and an IPv6 address has colons of its own."""
    if said.startswith("["):
        return said.partition("]")[0] + "]"
    return said if said.startswith("/") or said.count(":") > 1 else said.partition(":")[0]


def wrong_option(of: Parts) -> str:
    """What is wrong with the options, or an empty text. SQLAlchemy judges the options of other databases."""
    if of.database != "postgresql":
        return ""
    for name in of.options:
        if name in _INSTEAD:
            return f"does not know {_INSTEAD[name]}"
        if name not in _OPTIONS:
            close = get_close_matches(
                name, _OPTIONS, n=1
            )  # any other name may be a piece of what should be secret
            shown = f"an option {name!r}; did you mean {close[0]!r}?" if close else "an unknown option;"
            return f"has {shown} there are {', '.join(sorted(_OPTIONS))}"
    return ""
