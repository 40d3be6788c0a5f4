"""The Redis, the primary, or the cluster that holds the streams: its connections, and our scripts and reads over them.

`depot` makes one. Every call is bounded in time and raises our errors. Nothing is tried again here, but a script that a server
does not know is loaded and sent once more. In a cluster each partition's keys lie in one slot, so a call of several partitions
becomes one call for each, some at a time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from redis import exceptions as redis_errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from cacheupdater.adapters.depot_redis.replies import translated
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol import streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from cacheupdater.adapters.depot_redis.scripts import Script

CALL_TIMEOUT_S = 1.0  # a session of five seconds has time for a few tries
SENTINEL_TIMEOUT_S = 0.1  # so that a Sentinel that hangs leaves time to ask the next
CONNECT_TIMEOUT_S = 0.5  # so that a connect leaves time for the call
TOGETHER = 16  # calls under way to a cluster: each holds a connection

Arg = bytes | str | int
Entry = tuple[int, bytes]  # the number of a pack, and the pack


class Call(NamedTuple):
    """One script for the keys of one slot. `args` begins with the number of keys, and the keys."""

    script: Script
    args: Sequence[Arg]


class Servers:
    """Connections to the streams of one address."""

    def __init__(self, address: streams.Address) -> None:
        self._stream = address.stream
        self.is_cluster = streams.is_cluster(address)
        self._has_sentinels = bool(streams.primary_of(address))
        self._doubted = False  # the primary may be another one by now
        try:
            self._redis: Any = _client(address)  # redis-py's own: half of it has no types
            if not self.is_cluster:
                self._redis.connection_pool.make_connection()  # which reads the options
        except (ValueError, TypeError, redis_errors.RedisError) as e:
            raise Misconfigured("the Redis URL has an option that redis-py cannot read") from e

    async def run(self, script: Script, *args: Arg) -> Any:
        """The reply of one script."""
        [reply] = await self.run_all([Call(script, args)])
        return reply

    async def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """The replies, in order. If one fails, some of the others may have been carried out."""
        async with self._one_call():
            replies = await self._send(calls)
            unknown = [at for at, each in enumerate(replies) if isinstance(each, redis_errors.NoScriptError)]
            if unknown:
                await self._load({calls[at].script for at in unknown})
                for at, reply in zip(unknown, await self._send([calls[at] for at in unknown]), strict=True):
                    replies[at] = reply
        self._raise_first(replies)
        return replies

    def _raise_first(self, replies: Sequence[Any]) -> None:
        for each in replies:
            if isinstance(each, BaseException):
                self._doubted = True
                raise translated(each, self._stream) from each

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        commands = [("EVALSHA", call.script.sha, *call.args) for call in calls]
        if self.is_cluster or len(commands) == 1:
            return await _gather([partial(self._redis.execute_command, *command) for command in commands])
        async with self._redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies

    async def _load(self, scripts: set[Script]) -> None:
        where = {"target_nodes": RedisCluster.PRIMARIES} if self.is_cluster else {}
        for script in scripts:
            await self._redis.execute_command("SCRIPT LOAD", script.text, **where)

    async def read(self, after: Mapping[str, int], count: int) -> dict[str, list[Entry]]:
        """By stream, at most `count` entries at the given number and behind it."""
        async with self._one_call():
            if not self.is_cluster:
                return _entries(await self._redis.execute_command(*_xread(after, count)))
            replies = await _gather([partial(self._read_one, {key: at}, count) for key, at in after.items()])
        self._raise_first(replies)
        return {key: entries for each in replies for key, entries in _entries(each).items()}

    async def _read_one(self, after: Mapping[str, int], count: int) -> Any:
        # the node is named, or redis-py would ask a server where the keys stand in the command, each time
        node = self._redis.get_node_from_key(next(iter(after)))
        return await self._redis.execute_command(*_xread(after, count), target_nodes=node)

    async def await_entries(self, after: Mapping[str, int], seconds: float) -> None:
        """Returns when one of the streams has an entry at its number or behind, or when the time is over. One server only."""
        async with self._one_call(seconds + CALL_TIMEOUT_S):
            await self._redis.execute_command(*_xread(after, 1, block_ms=max(1, round(seconds * 1000))))

    async def keep(self, key: str, field: str, value: int) -> str:
        """What stands in this field of a hash; this value if there was nothing."""
        async with self._one_call():
            await self._redis.hsetnx(key, field, value)
            said: bytes = await self._redis.hget(key, field)
        return said.decode("utf-8", "replace")

    async def policies(self) -> set[str]:
        """What each server does at its maxmemory."""
        async with self._one_call():
            if not self.is_cluster:
                return {_policy(await self._redis.info("memory"))}
            said = await self._redis.execute_command("INFO", "memory", target_nodes=RedisCluster.PRIMARIES)
        return {_policy(each) for each in (said.values() if "maxmemory_policy" not in said else [said])}

    async def close(self) -> None:
        """Closes all connections."""
        await self._redis.aclose()
        if not self.is_cluster:
            manager = getattr(self._redis.connection_pool, "sentinel_manager", None)
            for sentinel in manager.sentinels if manager else ():
                await sentinel.aclose()

    @asynccontextmanager
    async def _one_call(self, seconds: float | None = None) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S if seconds is None else seconds):
                if self.is_cluster:
                    await self._redis.initialize()
                elif self._has_sentinels and self._doubted:
                    # a new connection asks the Sentinels; those in use would fail calls that have nothing to do with it
                    await self._redis.connection_pool.disconnect(inuse_connections=False)
                self._doubted = False
                yield
        except (OSError, TimeoutError, redis_errors.RedisError, redis_errors.RedisClusterException) as e:
            self._doubted = True
            raise translated(e, self._stream) from e
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise Unavailable("what Redis answered is no answer of ours") from e


def _client(address: streams.Address) -> Any:
    """redis-py's client. It tries nothing again: the queue above knows what may be repeated."""
    options: dict[str, Any] = {"protocol": 2, "socket_connect_timeout": CONNECT_TIMEOUT_S}
    options["retry"] = Retry(NoBackoff(), 0)
    seeds = streams.nodes(address)
    first = next(iter(seeds))
    name = streams.primary_of(address)
    if not streams.is_cluster(address) and not name:
        client = Redis.from_url(seeds[first], socket_timeout=None, **options)
        client.connection_pool.connection_kwargs["decode_responses"] = False  # whatever the URL says
        return client
    # of a cluster, a node that hangs must look dead to redis-py, or redis-py would not look for its successor
    options |= _parsed(streams.url_of(address, first)) | {"decode_responses": False}
    if not name:
        options.pop("db", None)
        nodes = [ClusterNode(host, port) for host, port in seeds]
        return RedisCluster(
            startup_nodes=nodes, require_full_coverage=False, socket_timeout=CALL_TIMEOUT_S, **options
        )
    theirs = _parsed(seeds[first]) | {"retry": Retry(NoBackoff(), 0), "protocol": 2}
    theirs |= {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    sentinel: Any = Sentinel  # redis-py's own: it has no types
    return sentinel(list(seeds), sentinel_kwargs=theirs).master_for(name, socket_timeout=None, **options)


def _parsed(url: str) -> dict[str, Any]:
    """The options that redis-py reads from the URL, without its host and port."""
    options: dict[str, Any] = {**parse_url(url)}
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return {name: value for name, value in options.items() if name not in {"host", "port"}}


async def _gather(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """All of them, some at a time; errors of Redis are returned."""
    room = asyncio.Semaphore(TOGETHER)

    async def one(call: Callable[[], Awaitable[Any]]) -> Any:
        async with room:
            try:
                return await call()
            except redis_errors.ResponseError as e:
                return e

    return list(await asyncio.gather(*map(one, calls)))


def _xread(after: Mapping[str, int], count: int, *, block_ms: int = 0) -> list[Arg]:
    """The command; XREAD's own numbers are those that were read last."""
    blocking: list[Arg] = ["BLOCK", block_ms] if block_ms else []
    behind = [f"{at - 1}-18446744073709551615" if at > 0 else "0" for at in after.values()]
    return ["XREAD", "COUNT", count, *blocking, "STREAMS", *after, *behind]


def _entries(reply: Any) -> dict[str, list[Entry]]:
    """An entry that is not ours, or that was removed meanwhile, counts as an empty pack: it must be passed like any other."""
    named = reply.items() if isinstance(reply, dict) else (reply or ())
    return {
        key.decode(): [
            (int(number.partition(b"-")[0]), (said or {}).get(b"pack", b"")) for number, said in entries
        ]
        for key, entries in named
    }


def _policy(info: Mapping[str, Any]) -> str:
    return str(info.get("maxmemory_policy", "unknown"))
