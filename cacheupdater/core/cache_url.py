"""Where a cache is: one Redis, a Redis Cluster, or the primary that the Sentinels name. One grammar for all callers.

    redis://user:password@host:6379/0?option=value                (rediss:// with TLS; unix:// for a socket)
    redis+cluster://user:password@host:6379,host:6379?option=value
    redis+sentinel://user:password@host:26379,host:26379/name/0?sentinel_password=secret&option=value

The configuration checks a URL with this module; the writer and the fleet connect by it. redis-py reads the URL of each single
server, so all options are redis-py's; only `sentinel_username` and `sentinel_password` are ours. Pure text: nothing is
looked up. No message repeats the URL, for it may hold a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cacheupdater.errors import Misconfigured

SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
_PORT, _SENTINEL_PORT = 6379, 26379
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:@,/\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")  # what Redis allows to a sentinel's group


@dataclass(frozen=True)
class One:
    """A server by itself, as redis-py reads it."""

    url: str = field(repr=False)


@dataclass(frozen=True)
class Cluster:
    """Any of `seeds` can name the other nodes."""

    seeds: tuple[tuple[str, int], ...]
    _tls: bool
    _user: str = field(repr=False)
    _options: str = field(repr=False)

    def url(self, host: str, port: int) -> str:
        """One node, for redis-py."""
        return _url(self._tls, self._user, f"{_bracketed(host)}:{port}", self._options)


@dataclass(frozen=True)
class Sentinels:
    """The Sentinels know where the primary called `name` is. The primary and the Sentinels may have different users."""

    seeds: tuple[tuple[str, int], ...]
    name: str
    _db: str
    _tls: bool
    _user: str = field(repr=False)
    _sentinel_user: str = field(repr=False)
    _options: str = field(repr=False)

    def url(self, host: str, port: int) -> str:
        """A primary, for redis-py."""
        return _url(self._tls, self._user, f"{_bracketed(host)}:{port}/{self._db}", self._options)

    def sentinel_url(self, host: str, port: int) -> str:
        """A sentinel, for redis-py."""
        return _url(self._tls, self._sentinel_user, f"{_bracketed(host)}:{port}", self._options)


def parse(text: str) -> One | Cluster | Sentinels:
    """Raises Misconfigured. Of a single server's URL only the scheme is checked here; redis-py checks the rest."""
    scheme, found, rest = text.partition("://")
    if not found or scheme not in SCHEMES:
        raise Misconfigured(
            f"use redis://, rediss:// or unix:// for one Redis, {_FORMS['cluster']} or {_FORMS['sentinel']}"
        )
    transport, _, kind = scheme.partition("+")
    if not kind:
        return One(text)
    rest, _, options = rest.partition("?")
    authority, _, path = rest.partition("/")
    user, _, hosts = authority.rpartition("@")
    tls = transport == "rediss"
    if kind == "cluster":
        if path.strip("/") not in {"", "0"}:
            raise Misconfigured(f"a Redis Cluster has database 0 only; write {_FORMS[kind]}")
        return Cluster(_hosts(hosts, _PORT, kind), tls, user, options)
    name, _, db = path.partition("/")
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"the name of the primary is missing; write {_FORMS[kind]}")
    if not re.fullmatch("[0-9]{0,9}", db):
        raise Misconfigured(f"the database must be a number; write {_FORMS[kind]}")
    theirs, options = _sentinel_user(options)
    return Sentinels(_hosts(hosts, _SENTINEL_PORT, kind), name, db or "0", tls, user, theirs, options)


def unusable(error: Exception) -> str:
    """Why redis-py cannot read a URL. Its own words are repeated only if they are about options: others quote hosts."""
    said = str(error)
    option = re.search(r"unexpected keyword argument '([a-z_]{1,60})'", said)
    if option:
        why = f"it has an option that redis-py does not know: {option[1]}"
    elif isinstance(error, Misconfigured) or re.fullmatch(
        r"Invalid value for '\w{1,60}' in connection URL\.", said
    ):
        why = said
    else:
        why = "its host, its port or an option of it cannot be read"
    return f"the Redis URL cannot be used: {why}"


_FORMS = {
    "cluster": "redis+cluster://host:6379,host:6379",
    "sentinel": "redis+sentinel://host:26379,host:26379/name-of-the-primary/0",
}


def _hosts(text: str, port: int, kind: str) -> tuple[tuple[str, int], ...]:
    found = [_HOST.fullmatch(each) for each in text.split(",")]
    hosts = [(each["host"].strip("[]"), int(each["port"] or port)) for each in found if each]
    if len(hosts) < len(found) or any(number > 65_535 for _, number in hosts):
        raise Misconfigured(f"its hosts cannot be read; write {_FORMS[kind]}")
    return tuple(dict.fromkeys(hosts))


def _sentinel_user(options: str) -> tuple[str, str]:
    """The user and password for the Sentinels, and all other options."""
    mine = {"sentinel_username": "", "sentinel_password": ""}
    others = []
    for each in options.split("&"):
        name, _, value = each.partition("=")
        if name in mine:
            mine[name] = value
        else:
            others.append(each)
    user = ":".join(mine.values()) if any(mine.values()) else ""
    return user, "&".join(others)


def _url(tls: bool, user: str, where: str, options: str) -> str:  # noqa: FBT001  one caller's shorthand
    return f"redis{'s' if tls else ''}://{user}{'@' if user else ''}{where}{'?' if options else ''}{options}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
