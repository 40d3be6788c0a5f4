"""One look at one key in Redis: its value, how long the value lives, and its age by its floor.

`cacheupdater explain` makes a `Glance`, asks it once and closes it. `check --connect` also searches for keys with it. A glance
changes nothing. A running updater does not use it, so a slow answer costs only a person's time. It needs the rights to TIME,
TYPE, GET, HGETALL and PTTL; to search for keys, also SCAN, and in other databases INFO and SELECT.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.sentinel import Sentinel

from cacheupdater import masking
from cacheupdater.core import cache_url
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol import fence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

T = TypeVar("T")

ANSWER_S = 3.0  # for the whole look; a person waits
_HAS_NO_TTL = -1
SCANNED = 1_000  # keys that one SCAN visits: less than a millisecond of Redis' time


class Look(NamedTuple):
    """What Redis has at a key."""

    kind: str  # the type, by Redis' names; "none" if the key does not exist
    value: bytes | Mapping[bytes, bytes] | None  # None also for a type that we never write
    ttl: float | None  # seconds; None: it never expires
    age: (
        float | None
    )  # seconds since the load that wrote it began, or since its invalidation; None: not known
    wrote: fence.Form | None = None  # the form in which a load of ours has written here, as the floor says

    @property
    def size(self) -> int:
        """The size of the value in bytes."""
        return fence.size_of(self.value)


class Glance:
    """One Redis, by any of the three kinds of URL."""

    def __init__(self, url: str) -> None:
        try:
            self._address = cache_url.parse(url)
            self._redis: Any = _client(self._address)
        except (ValueError, TypeError, redis_errors.RedisError) as e:
            raise Misconfigured(cache_url.unusable(e)) from e

    async def look(self, key: bytes) -> Look:
        """Reads the key. Raises Unavailable."""
        return await self._answered(self._looked(key))

    async def ttl(self, key: bytes) -> float | None:
        """Seconds until the key expires; None: it never does. Raises Unavailable."""
        return await self._answered(self._ttl(key))

    async def _answered(self, question: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await question
        except (TimeoutError, redis_errors.TimeoutError) as e:
            raise Unavailable(f"Redis did not answer within {ANSWER_S:g} s") from e
        except (OSError, redis_errors.RedisError, redis_errors.RedisClusterException) as e:
            raise Unavailable(f"Redis cannot be asked: {masking.foreign(str(e))}") from e

    async def keys(self, prefix: bytes, *, within: bool = False) -> AsyncIterator[bytes]:
        """The keys that begin with `prefix`, or hold it `within`, in no order, by SCAN. Raises Unavailable.

        The caller must bound the number of keys and the time.
        """
        pattern = b"".join(b"\\" + each if each in _GLOB else each for each in _bytes(prefix)) + b"*"
        if within:
            pattern = b"*" + pattern
        try:
            async for key in self._redis.scan_iter(match=pattern, count=SCANNED):
                yield key
        except (OSError, redis_errors.RedisError, redis_errors.RedisClusterException) as e:
            raise Unavailable(f"Redis cannot be searched: {masking.foreign(str(e))}") from e

    async def holds(self, database: int, wanted: Callable[[bytes], bool]) -> bool:
        """Whether another database of this server, by its number, has such a key. Raises Unavailable.

        The caller must bound the time.
        """
        try:
            async with self._redis.client() as other:
                try:
                    await other.select(database)
                    async for key in other.scan_iter(count=SCANNED):
                        if wanted(key):
                            return True
                finally:
                    await other.connection.disconnect()  # else another call would get it, in that database
        except (OSError, redis_errors.RedisError) as e:
            raise Unavailable(f"Redis cannot be searched: {masking.foreign(str(e))}") from e
        return False

    async def databases(self) -> tuple[int, list[int]]:
        """The number of our database, and of the server's others that have keys; no others where they cannot be known.

        They cannot be known in a cluster, or if a right is missing.
        """
        ours = int(self._redis.get_connection_kwargs().get("db") or 0)
        try:
            said = await self._redis.info("keyspace")
        except (OSError, redis_errors.RedisError, redis_errors.RedisClusterException):
            return ours, []
        numbers = (int(name[2:]) for name in said if name[:2] == "db" and name[2:].isdigit())
        return ours, [each for each in numbers if each != ours]

    async def close(self) -> None:
        """Closes the connections."""
        await self._redis.aclose()
        if isinstance(self._address, cache_url.Sentinels):
            for sentinel in self._redis.connection_pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    async def _looked(self, key: bytes) -> Look:
        redis = self._redis
        kind = (await redis.type(key)).decode()
        value = await (redis.get(key) if kind == "string" else redis.hgetall(key)) if kind in _READ else None
        ttl = await self._ttl(key)
        floor = await redis.get(fence.floor_name(key))
        newest = None if floor is None else fence.floor_of(floor)
        return Look(
            kind,
            value,
            ttl=ttl,
            age=await self._age(key, newest),
            wrote=None if newest is None else fence.form_of(newest),
        )

    async def _ttl(self, key: bytes) -> float | None:
        ttl = await self._redis.pttl(key)
        return None if ttl == _HAS_NO_TTL else max(0, ttl) / 1000.0

    async def _age(self, key: bytes, newest: int | None) -> float | None:
        if newest is None or not fence.tells_age(newest):
            return None
        where = {}
        if isinstance(self._address, cache_url.Cluster):
            where["target_nodes"] = self._redis.get_node_from_key(key)
        said = await self._redis.time(**where)
        seconds, micros = said if isinstance(said, (tuple, list)) else next(iter(said.values()))
        return (fence.token_of(int(seconds), int(micros)) - newest) / 1e9


_READ = frozenset({"string", "hash"})
_GLOB = frozenset({b"*", b"?", b"[", b"]", b"\\"})


def _bytes(text: bytes) -> list[bytes]:
    return [text[at : at + 1] for at in range(len(text))]


def _client(address: cache_url.One | cache_url.Cluster | cache_url.Sentinels) -> Any:
    limits: dict[str, Any] = {"protocol": 2, "socket_connect_timeout": ANSWER_S, "socket_timeout": ANSWER_S}
    if isinstance(address, cache_url.One):
        return Redis.from_url(address.url, **limits | {"decode_responses": False})
    options = limits | _options(address.url(*address.seeds[0]))
    if isinstance(address, cache_url.Cluster):
        nodes = [ClusterNode(host, port) for host, port in address.seeds]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options)
    theirs = limits | _options(address.sentinel_url(*address.seeds[0]))
    sentinels: Any = Sentinel  # redis-py's own: it has no types
    return sentinels(address.seeds, sentinel_kwargs=theirs).master_for(address.name, **options)


def _options(url: str) -> dict[str, Any]:
    """The options that redis-py reads from the URL, without its host and port."""
    read: dict[str, Any] = {**parse_url(url)}
    tls = {"ssl": True} if read.pop("connection_class", None) is not None else {}
    return {name: value for name, value in read.items() if name not in {"host", "port"}} | tls
