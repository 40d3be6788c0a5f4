"""The fleet port over the Redis whose values the fleet keeps fresh: one small hash per source, one script per exchange.

The composition root makes one `RedisFleet` per process where the configuration names a fleet; `pipeline.sharing` calls
it every few seconds. The script is atomic and goes by Redis' clock, so owners agree without knowing one another. The
owner's id is drawn by lot: a process that was killed and started again is somebody else, and its old claim runs out.

A call whose answer did not come may still be carried out, later than its successor: calls are numbered, and the script
ignores the late one. Nothing is repeated here; the next exchange is the repetition.

Beside what the writer needs, an ACL user needs: ~cacheupdater:fleet:* +hgetall +hset +hdel +pexpire +time
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
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from cacheupdater.core.price.shares import CLAIM_LIFE, YOUTH, Owner
from cacheupdater.errors import Faulty, Misconfigured, Unavailable
from cacheupdater.ports import Grant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cacheupdater.ports import Offer

CALL_TIMEOUT_S = 0.5  # as the writer's: a claim is worth three tries within its life
CONNECT_TIMEOUT_S = 0.3  # so that a connect leaves time for the call

_TEXT = Path(__file__).with_name("fleet.lua").read_text("utf-8")
_SHA = sha1(_TEXT.encode(), usedforsecurity=False).hexdigest()


class RedisFleet:
    """One owner of the fleet of this name."""

    def __init__(self, url: str, name: str) -> None:
        try:
            self._redis: Any = Redis.from_url(
                url,
                protocol=2,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=None,
                socket_connect_timeout=CONNECT_TIMEOUT_S,
            )
        except (ValueError, TypeError, redis_errors.RedisError) as e:
            raise Misconfigured(f"the Redis URL cannot be used: {e}") from e
        self._name = name
        self._owner = token_hex(8)
        self._numbers = count(1)

    async def exchange(self, source: str, offer: Offer) -> Grant:
        """Replace our claim."""
        rates = (offer.budget, offer.wanted, offer.held, offer.owner.price, offer.owner.aim)
        times = [round(seconds * 1000) for seconds in (CLAIM_LIFE, YOUTH)]
        arguments: list[str | int] = [
            self._owner,
            next(self._numbers),
            *(repr(float(each)) for each in rates),
            *times,
        ]
        async with _one_call():
            answer = await self._run(self._record(source), arguments)
        if not answer:
            raise Unavailable("a newer call of this updater came first")
        rate, *others = answer
        return Grant(float(rate), tuple(Owner(*map(float, each.split())) for each in others))

    async def leave(self, source: str) -> None:
        """Give our claim up."""
        async with _one_call():
            await self._redis.hdel(self._record(source), self._owner)

    async def close(self) -> None:
        """Claims stay as they are."""
        await self._redis.aclose()

    async def _run(self, record: str, arguments: Sequence[str | int]) -> list[bytes]:
        for _ in range(2):
            try:
                found: list[bytes] = await self._redis.evalsha(_SHA, 1, record, *arguments)
            except redis_errors.NoScriptError:
                await self._redis.script_load(_TEXT)
            else:
                return found
        raise Unavailable("Redis forgets its scripts")

    def _record(self, source: str) -> str:
        return f"cacheupdater:fleet:{self._name}:{source}"


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
    except redis_errors.RedisError as e:
        raise Unavailable(f"Redis cannot be used: {e}") from e
