"""The address of streams of hints in a Redis: the grammar of their URLs, the names of their keys, and the script that adds packs.

    redis://user:password@host:6379/0?stream=hints&partitions=12&option=value&...

    redis+cluster://host:7000,host:7001?stream=hints
    redis+sentinel://host:26379,host:26379/name-of-the-primary/0?stream=hints&sentinel_password=secret

The client's transport and the service's depot read the same URL, so one page documents both. `rediss` instead of `redis` stands
for TLS. `stream` is required. `partitions` is what the first to open the
streams makes; who names none takes what is there. `length` is how many packs each stream of one partition may have, and
`evicting=allowed` permits a Redis that evicts keys. All other options are redis-py's, but the Sentinels' user and password.

A partition has two streams. Touches may be trimmed, since the next read repeats them: the oldest go when there are too many or
when they are so old that an updater would drop them. Changes and misses are never trimmed: a full stream refuses more
(`FULL`), and its producers keep them. With one stream for both, trimming would have to search for touches among changes.

`docs/reference/wire.md` has all of this for other producers. Plain text and bytes: no socket, no clock, no redis-py.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater_client.protocol import options
from cacheupdater_client.protocol.wire import CHANGE, MISS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORM = "redis://host:6379/0?stream=hints&partitions=12"
SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
PARTITIONS = 12  # of new streams whose URL does not say
PARTITIONS_MAX = 10_000
LENGTH = 10_000  # packs of each stream of a partition: at 10 a second and client, a hundred clients for ten seconds
LENGTH_MAX = 10_000_000
TOUCH_AGE_MS = 60_000  # an updater drops touches that are older
SEEDS_MAX = 32  # any one of them suffices to find the others

PUT = Path(__file__).with_name("put.lua").read_text("utf-8")
PUT_SHA = sha1(PUT.encode(), usedforsecurity=False).hexdigest()

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:@,/\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_PRIMARY = re.compile(r"[A-Za-z0-9._-]+(?:/[0-9]{0,9})?")
_KEPT = (bytes([VERSION, MISS]), bytes([VERSION, CHANGE]))  # as every client encodes them
_OURS = ("stream", "partitions", "length", "evicting")
_SENTINELS = ("sentinel_username", "sentinel_password")
_PORT, _SENTINEL_PORT = 6379, 26379

Place = tuple[str, int]


class Address(NamedTuple):
    """The streams of one name in one Redis or cluster."""

    url: str  # of the Redis: without our own options
    stream: str
    partitions: int | None
    length: int
    evicting: bool

    def __str__(self) -> str:
        return f"the streams {self.stream}"

    def __repr__(self) -> str:
        return f"Address({self.stream})"  # the URL may hold a password


def parse(url: str) -> Address:
    """The address that a URL names. ValueError says what is wrong; no message repeats the URL."""
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in SCHEMES or "#" in url:
        raise ValueError(f"write {FORM}, or one of {', '.join(SCHEMES[1:])}")
    where, _, query = url.partition("?")
    said, theirs = options.split(query, _OURS)
    stream = said.get("stream", "")
    if not _NAME.fullmatch(stream):
        raise ValueError(f"names no stream, or not with letters, digits and ._- alone; write {FORM}")
    if said.get("evicting", "allowed") != "allowed":
        raise ValueError("has an option 'evicting' that says something else than allowed")
    partitions = options.number(said, "partitions", PARTITIONS_MAX)
    length = options.number(said, "length", LENGTH_MAX) or LENGTH
    rest = where[len(scheme) :] + ("?" if theirs else "") + "&".join(theirs)
    address = Address(scheme + rest, stream, partitions, length, "evicting" in said)
    _check(_parts(address))
    return address


def spelled(address: Address) -> str:
    """The URL that names this address. It may hold a password."""
    said = [f"stream={address.stream}"]
    said += [f"partitions={address.partitions}"] if address.partitions else []
    said += [f"length={address.length}"] if address.length != LENGTH else []
    said += ["evicting=allowed"] if address.evicting else []
    return f"{address.url}{'&' if '?' in address.url else '?'}{'&'.join(said)}"


def is_cluster(address: Address) -> bool:
    """Whether the keys are spread over the nodes of a Redis Cluster."""
    return _parts(address).kind == "cluster"


def primary_of(address: Address) -> str:
    """The name under which the Sentinels know the primary; empty where there are none."""
    parts = _parts(address)
    return parts.path.partition("/")[0] if parts.kind == "sentinel" else ""


def nodes(address: Address) -> dict[Place, str]:
    """The URL, for redis-py, of each server that the address names: the one, any of a cluster, or the Sentinels."""
    parts = _parts(address)
    if parts.kind != "sentinel":
        return {place: url_of(address, place) for place in parts.places}
    said = dict.fromkeys(_SENTINELS, "") | dict(parts.theirs)
    user = ":".join(said.values()) if any(said.values()) else ""
    return {place: _url(parts, user, place, "") for place in parts.places}


def url_of(address: Address, place: Place) -> str:
    """The URL, for redis-py, of a server that holds streams: a node of the cluster, or the primary."""
    parts = _parts(address)
    database = parts.path.partition("/")[2] if parts.kind == "sentinel" else parts.path
    return _url(parts, parts.user, place, database)


class _Parts(NamedTuple):
    transport: str  # redis or rediss
    kind: str  # empty, cluster or sentinel
    user: str
    hosts: int  # as many as the address names
    places: tuple[Place, ...]  # those of them that can be read
    path: str
    options: str
    theirs: tuple[tuple[str, str], ...]  # of the Sentinels


@lru_cache(maxsize=16)  # a process has few addresses
def _parts(address: Address) -> _Parts:
    scheme, _, rest = address.url.partition("://")
    transport, _, kind = scheme.partition("+")
    where, _, query = rest.partition("?")
    authority, _, path = where.partition("/")
    user, _, hosts = authority.rpartition("@")
    port = _SENTINEL_PORT if kind == "sentinel" else _PORT
    found = [_HOST.fullmatch(each) for each in hosts.split(",")]
    places = dict.fromkeys((each["host"].strip("[]"), int(each["port"] or port)) for each in found if each)
    options = [each.partition("=") for each in query.split("&") if each]
    theirs = tuple((name, value) for name, _, value in options if kind == "sentinel" and name in _SENTINELS)
    others = "&".join("".join(each) for each in options if (each[0], each[2]) not in theirs)
    readable = tuple(places) if all(found) else ()
    return _Parts(transport, kind, user, len(found), readable, path, others, theirs)


def _check(parts: _Parts) -> None:
    if not parts.places or parts.hosts > SEEDS_MAX or any(port > 65_535 for _, port in parts.places):
        raise ValueError(f"has no hosts, or hosts that cannot be read; write {FORM}")
    if not parts.kind and parts.hosts > 1:
        raise ValueError("names several hosts, which only redis+cluster:// and redis+sentinel:// have")
    if parts.kind == "cluster" and parts.path.strip("/") not in {"", "0"}:
        raise ValueError("names a database: a Redis Cluster has database 0 only")
    if parts.kind == "sentinel" and not _PRIMARY.fullmatch(parts.path):
        raise ValueError("names no primary; write redis+sentinel://host:26379/name-of-the-primary/0")


def _url(parts: _Parts, user: str, place: Place, path: str) -> str:
    options = f"?{parts.options}" if parts.options else ""
    where = f"{_bracketed(place[0])}:{place[1]}{'/' if path else ''}{path}"
    return f"{parts.transport}://{user}{'@' if user else ''}{where}{options}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# --- keys -----------------------------------------------------------------------------------------------


def roster_key(stream: str) -> str:
    """A hash: the number of partitions, the members, and who owns what."""
    return f"{{{stream}}}"


@lru_cache(maxsize=PARTITIONS_MAX)
def keys_of(stream: str, partition: int) -> tuple[str, str, str]:
    """The keys of one partition, in one slot: its record, its touches, its changes and misses."""
    record = f"{{{stream}:{partition}}}"
    return record, f"{record}:touches", f"{record}:kept"


def is_key_of(stream: str, name: bytes) -> bool:
    """Whether a key of Redis is the roster of these streams, or of one of their partitions."""
    return name == roster_key(stream).encode() or name.startswith(f"{{{stream}:".encode())


def is_kept(pack: bytes) -> bool:
    """Whether a pack holds changes or misses, by two of its bytes, without decoding it."""
    return pack[1:3] in _KEPT


def put_args(address: Address, packs: Iterable[tuple[int, bytes]]) -> list[bytes | str | int]:
    """What follows the script, or its hash, in EVAL and EVALSHA. In a cluster all packs must be of one partition."""
    numbers: dict[int, int] = {}
    said: list[bytes | str | int] = []
    for partition, pack in packs:
        said += (numbers.setdefault(partition, len(numbers) + 1), "K" if is_kept(pack) else "T", pack)
    keys: Sequence[str] = [key for partition in numbers for key in keys_of(address.stream, partition)]
    return [len(keys), *keys, address.length, TOUCH_AGE_MS, *said]
