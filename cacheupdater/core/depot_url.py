"""The address of a depot in a SQL database: the grammar of its URLs, which the configuration checks and the adapter opens.

    sqlite:////var/lib/cacheupdater/hints.db?partitions=12
    postgresql+asyncpg://user:password@host:5432/database?partitions=12&table=hints&tls=verify&ca=FILE

`partitions` is what the first updater makes; who names none takes what is there. `length` is how many packs of one lane may
wait. A PostgreSQL also has `table`, with which the names of the tables begin, `tls` and `ca`; its other options are the driver's.
Pure text: nothing is looked up, and no message repeats the URL.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlencode

from cacheupdater import masking
from cacheupdater.core import database_url
from cacheupdater_client.protocol import options

SQLITE_FORM = "sqlite:////var/lib/cacheupdater/hints.db?partitions=12"
POSTGRES_FORM = "postgresql+asyncpg://host:5432/database?partitions=12"
SCHEMES = ("sqlite", "sqlite+aiosqlite", "postgresql", "postgresql+asyncpg")
PARTITIONS = 12  # of new tables whose URL does not say
PARTITIONS_MAX = 10_000
LENGTH = 10_000  # packs of one lane that may wait, as many as in a stream of Redis
LENGTH_MAX = 10_000_000
TABLE = "cacheupdater_hints"

Tls: TypeAlias = Literal["off", "on", "verify"]

_TABLE = re.compile(r"(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,49}")
_OURS = ("partitions", "length")
_OF_POSTGRES = ("table", "tls", "ca")
_OF_THE_DRIVER = ("host", "port", "user", "password", "passfile", "target_session_attrs")


class Address(NamedTuple):
    """The depot in one database."""

    url: str  # without our own options; that of a PostgreSQL is for its driver, and may hold a password
    path: str  # of an SQLite: its file, else empty
    partitions: int | None
    length: int
    table: str
    tls: Tls
    ca: str | None

    def __str__(self) -> str:
        return f"the file {self.path}" if self.path else f"the tables {self.table}"

    def __repr__(self) -> str:
        return f"Address({self})"  # the URL may hold a password


def parse(url: str) -> Address:
    """The address that a URL names. ValueError says what is wrong."""
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in SCHEMES or "#" in url:
        raise ValueError(f"write {SQLITE_FORM} or {POSTGRES_FORM}")
    if problem := masking.ambiguity(url, sql=False):
        raise ValueError(problem)
    where, _, query = url.partition("?")
    is_file = scheme.startswith("sqlite")
    said, theirs = options.split(query, _OURS if is_file else _OURS + _OF_POSTGRES)
    partitions = options.number(said, "partitions", PARTITIONS_MAX)
    length = options.number(said, "length", LENGTH_MAX) or LENGTH
    if is_file:
        if theirs:
            raise ValueError(f"has an unknown option; there are {', '.join(_OURS)} and session_timeout")
        path = _path(where)
        return Address(f"sqlite:///{quote(path)}", path, partitions, length, TABLE, "off", None)
    driver_s = f"postgresql{where[len(scheme) :]}{'?' if theirs else ''}{'&'.join(theirs)}"
    table = said.get("table", TABLE)
    if not _TABLE.fullmatch(table):
        raise ValueError(
            "has an option 'table' that is no name: small letters, digits and _, at most 50, perhaps behind `schema.`"
        )
    return Address(driver_s, "", partitions, length, table, _tls(driver_s, said), said.get("ca"))


def url_of(address: Address) -> str:
    """The URL of this address, with all of our options. `parse` reads the same address from it."""
    said: dict[str, object] = {"partitions": address.partitions, "length": address.length}
    if address.path:
        return f"{address.url}?{_query(said)}"
    said |= {"table": address.table, "tls": address.tls, "ca": address.ca}
    return f"{address.url}{'&' if '?' in address.url else '?'}{_query(said)}"


def _query(said: dict[str, object]) -> str:
    return urlencode({name: value for name, value in said.items() if value is not None}, safe="/")


def _path(where: str) -> str:
    spelled = where.partition("://")[2]
    path = unquote(spelled)
    # with slashes as they are: spelled as %2F, they would be the beginning of a user
    if not spelled.startswith("//") or path.endswith("/"):
        raise ValueError(f"needs the absolute path of a file, with four slashes: {SQLITE_FORM}")
    return path[1:]


def _tls(url: str, said: dict[str, str]) -> Tls:
    parts = database_url.parts(url)
    if any(name not in _OF_THE_DRIVER for name in parts.options):
        known = ", ".join([*_OURS, "session_timeout", *_OF_POSTGRES, *_OF_THE_DRIVER])
        raise ValueError(f"has an unknown option; there are {known}")
    if not parts.hosts:
        raise ValueError(f"names no host; write {POSTGRES_FORM}")
    tls = said.get("tls", "off" if parts.local else "on")
    if tls not in {"off", "on", "verify"}:
        raise ValueError("has an option 'tls' that is not off, on or verify")
    if "ca" in said and tls != "verify":
        raise ValueError("has an option 'ca', which is for tls=verify")
    return "verify" if tls == "verify" else "on" if tls == "on" else "off"
