"""Finds the primary by a vote of the sentinels.

A writer asks before each new connection, and once a second whether the primary is still the same: a primary that was replaced
on command goes on taking writes for some ten seconds, and no reader will ever see these writes. All sentinels are asked at the
same time. If more than half of them name the same primary, it is taken at once. Otherwise the writer takes the primary that
most answers name, of those that come in time. So neither a frozen sentinel nor a sentinel that is cut off from the others can
mislead the writer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors

from cacheupdater.adapters.writer_redis.sessions import Session, connector

if TYPE_CHECKING:
    from cacheupdater.core.cache_url import Sentinels

ASK_S = 0.2  # leaves time to connect and to call within the half second of a call
LOOK_EVERY_S = 1.0  # for this long, writes may go to a former primary and be lost

_Place = tuple[str, int]


class Vote:
    """The votes for one writer. A connection to each sentinel stays open."""

    def __init__(self, address: Sentinels) -> None:
        """Raises Misconfigured if redis-py cannot read the URL's options for servers."""
        self._address = address
        connector(address.url("127.0.0.1", 1))
        self._sessions = {place: self._session(place) for place in address.seeds}
        self._asking: set[asyncio.Future[_Place | None]] = set()
        self._primary: _Place | None = None
        self._changed = False
        self._looked = -LOOK_EVERY_S

    async def connection(self) -> Any:
        """A connection to the present primary, not open yet."""
        return connector(self._address.url(*await self._look()))()

    async def has_changed(self) -> bool:
        """Whether connections made since the last call may lead to a former primary. Asks the sentinels once a second."""
        now = asyncio.get_running_loop().time()
        if self._primary is not None and now - self._looked >= LOOK_EVERY_S:
            self._looked = now  # set before the wait: one caller asks, the others go on
            await self._look()
        changed, self._changed = self._changed, False
        return changed

    async def _look(self) -> _Place:
        primary = await self._elected()
        self._changed |= self._primary not in {None, primary}
        self._primary = primary
        return primary

    async def close(self) -> None:
        for each in self._asking:
            each.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        for session in self._sessions.values():
            await session.end()

    async def _elected(self) -> _Place:
        votes: Counter[_Place] = Counter()
        asked = [asyncio.ensure_future(self._ask(place)) for place in self._address.seeds]
        for each in asked:  # requests that are not awaited any more end by themselves
            self._asking.add(each)
            each.add_done_callback(self._asking.discard)
        for answer in asyncio.as_completed(asked):
            if named := await answer:
                votes[named] += 1
                if votes[named] * 2 > len(asked):
                    return named
        if votes:
            return votes.most_common(1)[0][0]
        if self._primary is None:
            raise redis_errors.ConnectionError(f"no sentinel names a primary called {self._address.name}")
        return self._primary  # the primary may well work without its sentinels

    async def _ask(self, place: _Place) -> _Place | None:
        if self._sessions[place].over:
            self._sessions[place] = self._session(place)
        try:
            async with asyncio.timeout(ASK_S):
                [named] = await self._sessions[place].call(
                    [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.name)]
                )
        except (OSError, redis_errors.RedisError):
            return None
        return (named[0].decode(), int(named[1])) if isinstance(named, list) else None

    def _session(self, place: _Place) -> Session:
        connect = connector(self._address.sentinel_url(*place))

        async def make() -> Any:
            return connect()

        return Session(make)
