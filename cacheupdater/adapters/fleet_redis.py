"""The fleet port over the Redis whose values the fleet keeps fresh: one small hash per source, one script per exchange.

The composition root makes one `RedisFleet` per process if the configuration names a fleet. `price.shell.sharing` calls it
every few seconds. The script is atomic and uses Redis' clock, so owners agree without knowing one another. The owner's id is
random. A process that was killed and started again is a new owner, and its old claim expires.

A call whose answer did not come may still run, later than the next call. So calls are numbered, and the script ignores a late
one. Nothing is tried again here: the next exchange repeats the call.

A record is a single key, so in a cluster one node has it. redis-py finds this node, and the primary.

The script checks everything that it finds in the record, and this module checks the script's answers. A record of rubbish may
cost the fleet some seconds. It never ends a process, and the fleet never exceeds its budget.

Beside the writer's rights, an ACL user needs: ~cacheupdater:fleet:* +hgetall +hset +hdel +pexpire +time
In a cluster also +command, which redis-py uses.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from hashlib import sha1
from itertools import count
from math import isfinite
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
from cacheupdater.core.shares import CLAIM_LIFE, WAITING, YOUTH, Owner
from cacheupdater.errors import Faulty, Misconfigured, Unavailable
from cacheupdater.ports import Grant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from cacheupdater.ports import Offer

CALL_TIMEOUT_S = 0.5  # as the writer's: a claim's life has time for three tries
CONNECT_TIMEOUT_S = 0.3  # so that a connect leaves time for the call
SENTINEL_TIMEOUT_S = 0.1  # so that a sentinel that hangs leaves time to ask the next

_TEXT = Path(__file__).with_name("fleet.lua").read_text("utf-8")
_SHA = sha1(_TEXT.encode(), usedforsecurity=False).hexdigest()


class RedisFleet:
    """One owner in the fleet of this name."""

    def __init__(self, url: str, name: str) -> None:
        try:
            address = cache_url.parse(url)
            self._redis: Any = _client(address)
        except (ValueError, TypeError, Misconfigured, redis_errors.RedisError) as e:
            raise Misconfigured(cache_url.unusable(e)) from e
        self._kind = type(address)
        self._name = name
        self._owner, self._numbers, self._told = _newcomer()

    async def exchange(self, source: str, offer: Offer) -> Grant:
        """Replace our claim by this offer."""
        told = [each if isfinite(each) else 0.0 for each in offer.owner]
        rates = (offer.budget, offer.wanted, offer.held, *told, offer.least)
        times = [round(seconds * 1000) for seconds in (CLAIM_LIFE, YOUTH, WAITING)]
        number = next(self._numbers)
        self._told = max(self._told, number)
        async with _one_call():
            await self._find()
            said: list[str | int] = [self._owner, number, *(repr(float(each)) for each in rates), *times]
            answer = await self._run(self._record(source), said)
        try:
            return self._read(answer, offer)
        except (ValueError, TypeError, AttributeError) as e:
            raise Unavailable("what Redis answered is no answer of our script") from e

    def _read(self, answer: Sequence[bytes], offer: Offer) -> Grant:
        """The grant. Whatever the record holds, it never exceeds the wanted rate or the budget."""
        if len(answer) == 1:
            if int(answer[0]) <= self._told:
                raise Unavailable("a newer call of this updater came first")
            # The other claim under our name expires by itself. It may be larger than ours, but we never count on it.
            self._owner, self._numbers, self._told = _newcomer()
            raise Unavailable(
                "another program has written to the fleet's record in our name; we take another name"
            )
        rate, ahead, unsound, *told = answer
        most = min(offer.wanted, offer.budget)
        others = tuple(Owner(*map(float, each.split())) for each in told)
        granted = min(max(float(rate), 0.0), most) if isfinite(float(rate)) else 0.0
        return Grant(granted, others, int(ahead), int(unsound))

    async def leave(self, source: str) -> None:
        """Remove our claim."""
        async with _one_call():
            await self._find()
            await self._redis.hdel(self._record(source), self._owner)

    async def close(self) -> None:
        """Close the connections. Claims stay as they are."""
        await self._redis.aclose()
        if self._kind is cache_url.Sentinels:
            for sentinel in self._redis.connection_pool.sentinel_manager.sentinels:
                await sentinel.aclose()

    async def _find(self) -> None:
        """Drop the connections, so that the sentinels are asked again: a former primary answers for a while."""
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
        raise Unavailable("Redis does not keep the script that was just loaded")

    async def _load_script(self, record: str) -> None:
        """Load the script into the server that needs it."""
        where = {}
        if self._kind is cache_url.Cluster:
            where["target_nodes"] = self._redis.get_node_from_key(record)
        await self._redis.execute_command("SCRIPT LOAD", _TEXT, **where)

    def _record(self, source: str) -> str:
        return f"cacheupdater:fleet:{self._name}:{source}"


def _newcomer() -> tuple[str, Iterator[int], int]:
    """A new owner: its random name, the numbers of its calls, and the highest number that was sent."""
    return token_hex(8), count(1), 0


def _client(address: cache_url.One | cache_url.Cluster | cache_url.Sentinels) -> Any:
    """redis-py's client for this address. It retries nothing: the next exchange repeats the call."""
    options: dict[str, Any] = {"protocol": 2, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    if isinstance(address, cache_url.One):
        return Redis.from_url(address.url, retry=Retry(NoBackoff(), 0), socket_timeout=None, **options)
    # a node that hangs must look dead to redis-py, or redis-py would not look for its successor
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
    """The options that redis-py reads from the URL, without its host and port."""
    options: dict[str, Any] = {**parse_url(url)}
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return {name: value for name, value in options.items() if name not in {"host", "port"}}


@asynccontextmanager
async def _one_call() -> AsyncIterator[None]:
    """Limits the time of one exchange, and turns its failures into our errors."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            yield
    except (TimeoutError, redis_errors.TimeoutError) as e:
        raise Unavailable(f"Redis did not answer within {CALL_TIMEOUT_S:g} s") from e
    except redis_errors.NoPermissionError as e:
        raise Faulty(f"this Redis user may not keep the fleet's record: {masking.foreign(str(e))}") from e
    except (redis_errors.RedisError, redis_errors.RedisClusterException) as e:
        raise Unavailable(f"Redis cannot be used: {masking.foreign(str(e))}") from e
