"""The port `Marks` over the Redis whose values the feed keeps fresh: one small hash per feed, one script.

The composition root makes one `RedisMarks` per feed that polls. The feed takes the turn, renews it, and keeps its marks with each
confirmed batch. The owner is random, so a process that was killed and started again waits for the end of its old turn.

The marks live and die with the cache beside them. A Redis that comes back empty has no old values that a feed could have missed,
so a feed without marks begins at the present. The hash has no ttl: marks that had expired would leave a gap nobody notices.
It stays when a feed is removed: `DEL cacheupdater:feed:NAME`.

The hash is a single key, so in a cluster one node has it. Beside the writer's rights, an ACL user needs:
~cacheupdater:feed:* +evalsha +script|load +time +type +hmget +hset +hdel +hgetall
In a cluster also +command, which redis-py uses.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from hashlib import sha1
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from cacheupdater import masking
from cacheupdater.core import cache_url
from cacheupdater.errors import CacheUpdaterError, Faulty, Misconfigured, Unavailable
from cacheupdater.feed_ports import LEASE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

CALL_TIMEOUT_S = 0.5  # as the writer's: a turn has time for several tries
CONNECT_TIMEOUT_S = 0.3  # so that a connect leaves time for the call
SENTINEL_TIMEOUT_S = 0.1  # so that a sentinel that hangs leaves time to ask the next

_TEXT = Path(__file__).with_name("feed_marks.lua").read_text("utf-8")
_SHA = sha1(_TEXT.encode(), usedforsecurity=False).hexdigest()
_PREFIX = "mark:"


class RedisMarks:
    """The marks of the feed of this name, for one process."""

    def __init__(self, url: str, name: str) -> None:
        try:
            address = cache_url.parse(url)
            self._redis: Any = _client(address)
        except (ValueError, TypeError, Misconfigured, redis_errors.RedisError) as e:
            raise Misconfigured(cache_url.unusable(e)) from e
        self._kind = type(address)
        self._key = f"cacheupdater:feed:{name}"
        self._owner = token_hex(8)

    async def take(self) -> Mapping[str, str] | None:
        """As the port says."""
        ours, *fields = await self._call(LEASE)
        if not ours:
            return None
        try:
            texts = [each.decode() for each in fields]
        except UnicodeDecodeError as e:
            raise Faulty(f"another program has written to {self._key}; remove this key") from e
        pairs = zip(texts[::2], texts[1::2], strict=True)
        return {name.removeprefix(_PREFIX): text for name, text in pairs if name.startswith(_PREFIX)}

    async def keep(self, marks: Mapping[str, str]) -> None:
        """As the port says."""
        if marks:
            [ours] = await self._call(LEASE, *(text for pair in marks.items() for text in pair))
        else:
            [ours, *_] = await self._call(LEASE)
        if not ours:
            raise Unavailable("another updater reads this feed now")

    async def leave(self) -> None:
        """As the port says."""
        with suppress(CacheUpdaterError):
            await self._call(0.0)

    async def close(self) -> None:
        """As the port says."""
        await self._redis.aclose()
        if self._kind is cache_url.Sentinels:
            for sentinel in self._redis.connection_pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    async def _call(self, length: float, *marks: str) -> list[Any]:
        said = (self._owner, round(length * 1000), round(LEASE * 1000), *marks)
        async with _one_call(self._key):
            if self._kind is cache_url.Sentinels:  # a former primary answers for a while
                await self._redis.connection_pool.disconnect()
            for _ in range(2):
                try:
                    found: list[Any] = await self._redis.evalsha(_SHA, 1, self._key, *said)
                except redis_errors.NoScriptError:
                    await self._load_script()
                else:
                    return found
        raise Unavailable("Redis does not keep the script that was just loaded")

    async def _load_script(self) -> None:
        where = {}
        if self._kind is cache_url.Cluster:
            where["target_nodes"] = self._redis.get_node_from_key(self._key)
        await self._redis.execute_command("SCRIPT LOAD", _TEXT, **where)


def _client(address: cache_url.One | cache_url.Cluster | cache_url.Sentinels) -> Any:
    """redis-py's client for this address. It retries nothing: the feed does."""
    options: dict[str, Any] = {"protocol": 2, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    options["retry"] = Retry(NoBackoff(), 0)
    if isinstance(address, cache_url.One):
        return Redis.from_url(address.url, socket_timeout=None, **options)
    # a node that hangs must look dead to redis-py, or redis-py would not look for its successor
    options |= {"socket_timeout": CONNECT_TIMEOUT_S, **_parsed(address.url(*address.seeds[0]))}
    if isinstance(address, cache_url.Cluster):
        nodes = [ClusterNode(host, port) for host, port in address.seeds]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options)
    theirs = _parsed(address.sentinel_url(*address.seeds[0]))
    theirs |= {"retry": Retry(NoBackoff(), 0), "protocol": 2}
    theirs |= {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    sentinel: Any = Sentinel  # redis-py's own: it has no types
    return sentinel(address.seeds, sentinel_kwargs=theirs).master_for(address.name, **options)


def _parsed(url: str) -> dict[str, Any]:
    """The options that redis-py reads from the URL, without its host and port."""
    options: dict[str, Any] = {**parse_url(url)}
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return {name: value for name, value in options.items() if name not in {"host", "port"}}


@asynccontextmanager
async def _one_call(key: str) -> AsyncIterator[None]:
    """Limits the time of one call, and turns its failures into our errors."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            yield
    except (TimeoutError, redis_errors.TimeoutError) as e:
        raise Unavailable(f"Redis did not answer within {CALL_TIMEOUT_S:g} s") from e
    except redis_errors.NoPermissionError as e:
        raise Faulty(f"this Redis user may not keep {key}: {masking.foreign(str(e))}") from e
    except redis_errors.ResponseError as e:
        if str(e).startswith("FOREIGN"):
            raise Faulty(f"another program has written to {key}; remove this key") from e
        raise Unavailable(f"Redis cannot be used: {masking.foreign(str(e))}") from e
    except (redis_errors.RedisError, redis_errors.RedisClusterException) as e:
        raise Unavailable(f"Redis cannot be used: {masking.foreign(str(e))}") from e
