"""The fleet port over the Redis whose values the fleet keeps fresh: one small hash per source, one script per exchange.

The composition root makes one `RedisFleet` per process where the configuration names a fleet; `pipeline.sharing` calls
it every few seconds. The script is atomic and goes by Redis' clock, so owners agree without knowing one another. The
owner's id is drawn by lot: a process that was killed and started again is somebody else, and its old claim runs out.

A call whose answer did not come may still be carried out, later than its successor: calls are numbered, and the script
ignores the late one. Nothing is repeated here; the next exchange is the repetition.

A record is a single key, so in a cluster one node has it; redis-py finds out which, and who the primary is.

Beside what the writer needs, an ACL user needs: ~cacheupdater:fleet:* +hgetall +hset +hdel +pexpire +time
In a cluster also +command, which redis-py asks for.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from hashlib import sha1
from itertools import count
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

from cacheupdater.core import cache_url
from cacheupdater.core.price.shares import CLAIM_LIFE, WAITING, YOUTH, Owner
from cacheupdater.errors import Faulty, Misconfigured, Unavailable
from cacheupdater.ports import Grant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cacheupdater.ports import Offer

CALL_TIMEOUT_S = 0.5  # as the writer's: a claim is worth three tries within its life
CONNECT_TIMEOUT_S = 0.3  # so that a connect leaves time for the call
SENTINEL_TIMEOUT_S = 0.1  # one that hangs leaves time to ask the next

_TEXT = Path(__file__).with_name("fleet.lua").read_text("utf-8")
_SHA = sha1(_TEXT.encode(), usedforsecurity=False).hexdigest()


class RedisFleet:
    """One owner of the fleet of this name."""

    def __init__(self, url: str, name: str) -> None:
        try:
            address = cache_url.parse(url)
            self._redis: Any = _client(address)
        except (ValueError, TypeError, Misconfigured, redis_errors.RedisError) as e:
            raise Misconfigured(f"the Redis URL cannot be used: {e}") from e
        self._kind = type(address)
        self._name = name
        self._owner = token_hex(8)
        self._numbers = count(1)

    async def exchange(self, source: str, offer: Offer) -> Grant:
        """Replace our claim."""
        rates = (offer.budget, offer.wanted, offer.held, offer.owner.price, offer.owner.aim, offer.least)
        times = [round(seconds * 1000) for seconds in (CLAIM_LIFE, YOUTH, WAITING)]
        arguments: list[str | int] = [
            self._owner,
            next(self._numbers),
            *(repr(float(each)) for each in rates),
            *times,
        ]
        async with _one_call():
            await self._find()
            answer = await self._run(self._record(source), arguments)
        if not answer:
            raise Unavailable("a newer call of this updater came first")
        rate, ahead, *others = answer
        return Grant(float(rate), tuple(Owner(*map(float, each.split())) for each in others), int(ahead))

    async def leave(self, source: str) -> None:
        """Give our claim up."""
        async with _one_call():
            await self._find()
            await self._redis.hdel(self._record(source), self._owner)

    async def close(self) -> None:
        """Claims stay as they are."""
        await self._redis.aclose()
        if self._kind is cache_url.Sentinels:
            for sentinel in self._redis.connection_pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    async def _find(self) -> None:
        """Sentinels are asked at each new connection only, and a former primary answers for a while."""
        if self._kind is cache_url.Sentinels:
            await self._redis.connection_pool.disconnect()

    async def _run(self, record: str, arguments: Sequence[str | int]) -> list[bytes]:
        for _ in range(2):
            try:
                found: list[bytes] = await self._redis.evalsha(_SHA, 1, record, *arguments)
            except redis_errors.NoScriptError:
                await self._load_script(record)
            else:
                return found
        raise Unavailable("Redis forgets its scripts")

    async def _load_script(self, record: str) -> None:
        """To the one server that needs it."""
        where = {}
        if self._kind is cache_url.Cluster:
            where["target_nodes"] = self._redis.get_node_from_key(record)
        await self._redis.execute_command("SCRIPT LOAD", _TEXT, **where)

    def _record(self, source: str) -> str:
        return f"cacheupdater:fleet:{self._name}:{source}"


def _client(address: cache_url.One | cache_url.Cluster | cache_url.Sentinels) -> Any:
    """redis-py's client for it. Nothing is tried again; that is the next exchange's part."""
    options: dict[str, Any] = {"protocol": 2, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    if isinstance(address, cache_url.One):
        return Redis.from_url(address.url, retry=Retry(NoBackoff(), 0), socket_timeout=None, **options)
    # a node that hangs must look dead to redis-py, or it would not ask for its successor
    options |= {"retry": Retry(NoBackoff(), 0), "socket_timeout": CONNECT_TIMEOUT_S}
    options |= _parsed(address.url(*address.seeds[0]))
    if isinstance(address, cache_url.Cluster):
        nodes = [ClusterNode(host, port) for host, port in address.seeds]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options)
    theirs = _parsed(address.sentinel_url(*address.seeds[0]))
    theirs |= {"retry": Retry(NoBackoff(), 0), "protocol": 2}
    theirs |= {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    sentinel: Any = Sentinel  # redis-py's own: it has no types
    return sentinel(address.seeds, sentinel_kwargs=theirs).master_for(address.name, **options)


def _parsed(url: str) -> dict[str, Any]:
    """What redis-py reads from it, without the place."""
    options: dict[str, Any] = {**parse_url(url)}
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return {name: value for name, value in options.items() if name not in {"host", "port"}}


@asynccontextmanager
async def _one_call() -> AsyncIterator[None]:
    """Bounds one exchange and tells its failures in our words."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            yield
    except (TimeoutError, redis_errors.TimeoutError) as e:
        raise Unavailable(f"Redis did not answer within {CALL_TIMEOUT_S:g} s") from e
    except redis_errors.NoPermissionError as e:
        raise Faulty(f"this Redis user may not keep the fleet's record: {e}") from e
    except (redis_errors.RedisError, redis_errors.RedisClusterException) as e:
        raise Unavailable(f"Redis cannot be used: {e}") from e
