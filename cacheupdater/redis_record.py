"""Small records in the Redis whose values are kept fresh: one key each, changed by one script in one call.

`adapters.fleet_redis` and `adapters.feed_marks_redis` keep theirs by a `RedisRecord`, which lives as long as they do. A single server, a
cluster and a primary that sentinels name are reached alike: a record is one key, so in a cluster one node has it. Nothing is tried
again here, and nothing is known of what a record holds.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from hashlib import sha1
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from redis import exceptions as redis_errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from cacheupdater import masking
from cacheupdater.answer_time import AnswerTime
from cacheupdater.core import cache_url
from cacheupdater.errors import Faulty, Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CALL_TIMEOUT_S = 0.5  # as the writer's: what a record grants lasts for several tries
CONNECT_TIMEOUT_S = 0.3  # so that a connect leaves time for the call
SENTINEL_TIMEOUT_S = 0.1  # so that a sentinel that hangs leaves time to ask the next
PREFIX = "cacheupdater:"  # how the names of all records begin
FOREIGN = "FOREIGN"  # how a script's error begins if another program has written to the record


class _Sentinel(Protocol):
    async def aclose(self) -> None: ...


class _Sentinels(Protocol):
    sentinels: list[_Sentinel]

    def master_for(self, name: str, **options: object) -> _Client: ...


class _Pool(Protocol):
    sentinel_manager: _Sentinels

    async def disconnect(self) -> None: ...


class _Client(Protocol):
    """What is used of redis-py's clients, which have no type in common."""

    connection_pool: _Pool

    async def evalsha(self, sha: str, keys: int, *said: str | int) -> list[object]: ...

    async def execute_command(self, *said: str, **where: object) -> object: ...

    async def hdel(self, key: str, field: str) -> object: ...

    def get_node_from_key(self, key: str) -> object: ...

    async def aclose(self) -> None: ...


_Made: TypeAlias = (
    "Callable[..., _Client]"  # redis-py's own types do not say that their options may be passed on
)


class RedisRecord:
    """The records of one kind."""

    def __init__(self, url: str, script: str, *, what: str) -> None:
        """`what` names the record in errors. Raises Misconfigured if the URL cannot be used."""
        try:
            address = cache_url.parse(url)
            self._redis = _client(address)
        except (ValueError, TypeError, Misconfigured, redis_errors.RedisError) as e:
            raise Misconfigured(cache_url.unusable(e)) from e
        self._kind = type(address)
        self._script = script
        self._sha = sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._what = what

    async def run(self, key: str, *arguments: str | int) -> list[object]:
        """The answer of the script about this record. Raises Unavailable (it may run later), or Faulty."""
        async with self._one_call():
            for _ in range(2):
                try:
                    found = await self._redis.evalsha(self._sha, 1, key, *arguments)
                except redis_errors.NoScriptError:
                    await self._load_script(key)
                else:
                    return found
        raise Unavailable("Redis does not keep the script that was just loaded")

    async def forget(self, key: str, field: str) -> None:
        """Removes one field of this record. Raises as `run`."""
        async with self._one_call():
            await self._redis.hdel(key, field)

    async def close(self) -> None:
        """Closes the connections. Records stay as they are."""
        await self._redis.aclose()
        if self._kind is cache_url.Sentinels:
            for sentinel in self._redis.connection_pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    async def _load_script(self, key: str) -> None:
        """Loads the script into the server that needs it."""
        where: dict[str, object] = {}
        if self._kind is cache_url.Cluster:
            where["target_nodes"] = self._redis.get_node_from_key(key)
        await self._redis.execute_command("SCRIPT LOAD", self._script, **where)

    @asynccontextmanager
    async def _one_call(self) -> AsyncIterator[None]:
        """Limits the time of one exchange, and turns its failures into our errors."""
        try:
            async with AnswerTime(CALL_TIMEOUT_S):
                if (
                    self._kind is cache_url.Sentinels
                ):  # a former primary answers for a while: ask who it is now
                    await self._redis.connection_pool.disconnect()
                yield
        except (TimeoutError, redis_errors.TimeoutError) as e:
            raise Unavailable(f"Redis did not answer within {CALL_TIMEOUT_S:g} s") from e
        except redis_errors.NoPermissionError as e:
            raise Faulty(f"this Redis user may not keep {self._what}: {masking.foreign(str(e))}") from e
        except (redis_errors.RedisError, redis_errors.RedisClusterException) as e:
            if isinstance(e, redis_errors.ResponseError) and str(e).startswith(FOREIGN):
                raise Faulty(f"another program has written to {self._what}; remove this key") from e
            raise Unavailable(f"Redis cannot be used: {masking.foreign(str(e))}") from e


def _client(address: cache_url.One | cache_url.Cluster | cache_url.Sentinels) -> _Client:
    """redis-py's client for this address. It retries nothing: the caller does."""
    options: dict[str, object] = {"protocol": 2, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    options["retry"] = Retry(NoBackoff(), 0)
    if isinstance(address, cache_url.One):
        return cast("_Made", Redis.from_url)(address.url, socket_timeout=None, **options)
    # a node that hangs must look dead to redis-py, or redis-py would not look for its successor
    options |= {"socket_timeout": CONNECT_TIMEOUT_S, **_parsed(address.url(*address.seeds[0]))}
    if isinstance(address, cache_url.Cluster):
        nodes = [ClusterNode(host, port) for host, port in address.seeds]
        return cast("_Made", RedisCluster)(startup_nodes=nodes, require_full_coverage=False, **options)
    theirs = _parsed(address.sentinel_url(*address.seeds[0]))
    theirs |= {"retry": Retry(NoBackoff(), 0), "protocol": 2}
    theirs |= {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    sentinels = cast("Callable[..., _Sentinels]", Sentinel)(address.seeds, sentinel_kwargs=theirs)
    return sentinels.master_for(address.name, **options)


def _parsed(url: str) -> dict[str, object]:
    """The options that redis-py reads from the URL, without its host and port."""
    options: dict[str, object] = {**parse_url(url)}
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return {name: value for name, value in options.items() if name not in {"host", "port"}}
