"""The cache's commands on one asyncio client. Built like `cacheupdater_client.cache.store`; only the waiting differs."""
# redis-py types its commands, but not the seams that are used here
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from random import random
from typing import TYPE_CHECKING, Any, cast

import redis.asyncio.cluster
from redis.exceptions import NoScriptError, RedisError, ResponseError

from cacheupdater_client.asyncio.redis import ObservedCommands
from cacheupdater_client.cache import requests
from cacheupdater_client.observe import Emitting
from cacheupdater_client.protocol.fence import floor_name, lease_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from cacheupdater_client.cache.declared import Declared
    from cacheupdater_client.cache.requests import Call, Reply
    from cacheupdater_client.cache.steps import Entry
    from cacheupdater_client.observe import Hints
    from cacheupdater_client.protocol import fence
    from cacheupdater_client.protocol.lease import Grace, Seen, Terms


class Store:
    """The commands."""

    def __init__(self, client: Any) -> None:
        if not isinstance(client, ObservedCommands):
            raise TypeError(requests.refusal(client, "cacheupdater_client.asyncio"))
        self._client: Any = client
        self.apart = isinstance(client, redis.asyncio.cluster.RedisCluster)
        # redis-py's own methods, found at each call, so that a tracer that patches them sees every command
        self.plain: Any = super(ObservedCommands, client)
        self._plain_pipes: Any = super(Emitting, client)

    @property
    def hints(self) -> Hints:
        """Where the hints of this client go now."""
        hints: Hints = self._client._hints  # noqa: SLF001  of our own class
        return hints

    async def invalidate(self, key: bytes) -> None:
        """The client's own."""
        await self._client.invalidate(key)

    def get(self, key: bytes) -> Awaitable[bytes | None]:
        """GET. redis-py's own awaitable, with its errors: a coroutine around it would cost every read."""
        value: Awaitable[bytes | None] = self.plain.execute_command("GET", key, keys=[key], NEVER_DECODE=True)
        return value

    async def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of these keys."""
        if not self.apart:
            return cast(
                "list[bytes | None]", await self.plain.execute_command("MGET", *keys, NEVER_DECODE=True)
            )
        try:
            return cast("list[bytes | None]", await self._got(keys, raise_on_error=True))
        except ResponseError as e:
            if not requests.is_of_another_type(e):
                raise
        # once more, for the values of the other keys: to look at every reply would cost the usual read
        return requests.values(await self._got(keys, raise_on_error=False))

    async def look(self, owner: str, keys: Sequence[bytes], terms: Terms) -> list[Seen]:
        """LOOK for these keys."""
        calls = requests.look_calls(owner, keys, terms, apart=self.apart)
        return requests.seen(await self._sent(calls))

    async def fill(self, owner: str, entries: Sequence[Entry], declared: Declared) -> list[fence.Outcome]:
        """COMMIT, then RELEASE, in one round trip. An error of Redis is the outcome of its keys."""
        calls = requests.fill_calls(entries, declared, apart=self.apart, random=random)
        ends = requests.release_calls(owner, [entry.key for entry in entries], apart=self.apart)
        try:
            replies = await self._sent([*calls, *ends])
        except RedisError as e:
            replies = requests.failed([*calls, *ends], e)
        return requests.outcomes(calls, replies[: len(calls)])

    async def release(self, owner: str, keys: Sequence[bytes]) -> None:
        """RELEASE, whatever becomes of it: leases also expire."""
        try:
            await self._sent(requests.release_calls(owner, keys, apart=self.apart))
        except RedisError:
            return

    async def prolong(self, owner: str, keys: Sequence[bytes], grace: Grace) -> None:
        """PROLONG, whatever becomes of it: without it the values expire as they would have."""
        try:
            await self._sent(requests.prolong_calls(owner, keys, grace, apart=self.apart))
        except RedisError:
            return

    async def outdate(self, key: bytes, hold_ms: int) -> bool:
        """OUTDATE. Whether the old value stays. The updater hears of the change in any case, as from `invalidate`."""
        try:
            return requests.was_kept(key, await self._sent([requests.outdate_call(key, hold_ms)]))
        finally:
            self._client._changed([key])  # noqa: SLF001  of our own class

    async def leased(self, keys: Sequence[bytes]) -> list[bool]:
        """Whether each key has a lease."""
        return [held is not None for held in await self.read([lease_name(key) for key in keys])]

    async def floors(self, keys: Sequence[bytes]) -> list[bytes]:
        """The floors of these keys; empty where there is none."""
        return [floor or b"" for floor in await self.read([floor_name(key) for key in keys])]

    async def _got(self, keys: Sequence[bytes], *, raise_on_error: bool) -> list[Reply]:
        """The replies to one GET for each key, for keys of many nodes."""
        pipe = self._plain_pipes.pipeline(transaction=False)
        for key in keys:
            pipe.execute_command("GET", key, NEVER_DECODE=True)
        return cast("list[Reply]", await pipe.execute(raise_on_error=raise_on_error))

    async def _sent(self, calls: Sequence[Call]) -> list[Reply]:
        if len(calls) == 1 and not self.apart:
            return [await self._evaluated(calls[0])]
        if self.apart:
            await self._client.initialize()  # at the first call: only then are the keys' nodes known
        pipe = self._plain_pipes.pipeline(transaction=False)
        for call in calls:
            # where the owner is not named, redis-py asks the server where a script's keys stand
            node = {"target_nodes": self._client.get_node_from_key(call.keys[0])} if self.apart else {}
            pipe.execute_command("EVALSHA", call.script.sha, *call.args, NEVER_DECODE=True, **node)
        replies = cast("list[Reply]", await pipe.execute(raise_on_error=False))
        for at in requests.to_repeat(replies):
            try:
                replies[at] = await self._as_text(calls[at])
            except RedisError as e:
                replies[at] = e
        return replies

    async def _evaluated(self, call: Call) -> Reply:
        try:
            return await self._client.execute_command(
                "EVALSHA", call.script.sha, *call.args, NEVER_DECODE=True
            )
        except NoScriptError:
            return await self._as_text(call)

    async def _as_text(self, call: Call) -> Reply:
        """For a new or restarted Redis: EVAL runs the script and leaves it loaded."""
        return await self._client.execute_command("EVAL", call.script.text, *call.args, NEVER_DECODE=True)
