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

from itertools import count
from math import isfinite
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from cacheupdater.core.shares import CLAIM_LIFE, WAITING, YOUTH, Owner
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Grant
from cacheupdater.redis_record import PREFIX, RedisRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cacheupdater.ports import Offer

_SCRIPT = Path(__file__).with_name("fleet.lua").read_text("utf-8")


class RedisFleet:
    """One owner in the fleet of this name."""

    def __init__(self, url: str, name: str) -> None:
        self._redis = RedisRecord(url, _SCRIPT, what="the fleet's record")
        self._name = name
        self._owner, self._numbers, self._told = _newcomer()

    async def exchange(self, source: str, offer: Offer) -> Grant:
        """Replace our claim by this offer."""
        told = [each if isfinite(each) else 0.0 for each in offer.owner]
        rates = (offer.budget, offer.wanted, offer.held, *told, offer.least)
        times = [round(seconds * 1000) for seconds in (CLAIM_LIFE, YOUTH, WAITING)]
        number = next(self._numbers)
        self._told = max(self._told, number)
        said: list[str | int] = [self._owner, number, *(repr(float(each)) for each in rates), *times]
        answer: Any = await self._redis.run(self._record(source), *said)
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
        await self._redis.forget(self._record(source), self._owner)

    async def close(self) -> None:
        """Close the connections. Claims stay as they are."""
        await self._redis.close()

    def _record(self, source: str) -> str:
        return f"{PREFIX}fleet:{self._name}:{source}"


def _newcomer() -> tuple[str, Iterator[int], int]:
    """A new owner: its random name, the numbers of its calls, and the highest number that was sent."""
    return token_hex(8), count(1), 0
