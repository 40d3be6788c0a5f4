"""Which node of a cluster has a key, as far as we know.

The cluster's writer asks `Slots` before each call. It reports what the nodes say: that a slot has moved, that a key has moved
ahead of its slot, or that a node does not answer. The present knowledge is a `View`, which never changes: new knowledge makes
a new view. A token keeps the view under which it was taken. All known nodes are asked for the slots, the seeds too, so one
node that answers is enough.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from redis import exceptions as redis_errors
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from cacheupdater.adapters.writer_redis.replies import text_of, told
from cacheupdater.adapters.writer_redis.sessions import CALL_TIMEOUT_S, Node, Session, connector
from cacheupdater.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.core.cache_url import Cluster

LEARN_EVERY_S = 0.25  # a cluster in trouble is not asked more often
LEARN_S = (
    0.25  # for nodes to answer, once some are known; a call may wait for this before its own half second
)
ASK_MAX = 8  # nodes asked at a time; other nodes the next time
ASIDE_MAX = 10_000  # known keys that are ahead of their slot
ASIDE_S = 2.0  # usually the slot has arrived long before, and then the key is found by its slot
SILENCE_S = 0.5  # a node that failed is not asked for this time, so that no unit waits for it

Place = tuple[str, int]


class Member(Node):
    """A primary of the cluster."""

    def __init__(self, place: Place, url: str) -> None:
        self.place = place
        self._connect = connector(url)
        self._silent_until = 0.0
        super().__init__(self._connection)

    def __str__(self) -> str:
        return "{}:{}".format(*self.place)

    def may_be_asked(self, now: float) -> bool:
        """False shortly after a failure. After that time, one caller tries whether the node still fails."""
        if not self._silent_until:
            return True
        if now < self._silent_until:
            return False
        self._silent_until = now + SILENCE_S
        return True

    def failed(self, now: float) -> None:
        self._silent_until = now + SILENCE_S

    def answered(self) -> None:
        self._silent_until = 0.0

    async def _connection(self) -> Any:
        return self._connect()


class View(NamedTuple):
    """What is known at one moment."""

    owners: Sequence[Member | None]  # by slot
    aside: Mapping[
        bytes, Member
    ]  # of the keys in question, those that have moved to this node ahead of their slot

    def home(self, key: bytes) -> Member | None:
        return (self.aside.get(key) if self.aside else None) or self.owners[key_slot(key)]

    def homes(self) -> set[Member]:
        return {each for each in (*set(self.owners), *self.aside.values()) if each is not None}


class Slots:
    """Where keys are, in one cluster."""

    def __init__(self, address: Cluster) -> None:
        """Raises Misconfigured if redis-py cannot read the URL's options for nodes."""
        self._address = address
        self._members: dict[Place, Member] = {}
        self._owners: list[Member | None] = []
        self._aside: dict[bytes, tuple[Member, float]] = {}
        self._doubted = False
        self._hint: Place | None = None  # the node that was named last as an owner: it knows best
        self._turn = asyncio.Lock()
        self._again = 0.0
        self._why = "nothing in time"
        self._rotation = 0
        connector(address.url("127.0.0.1", 1))

    async def view(self, keys: Sequence[bytes] = ()) -> View:
        """What is known now about these keys; without keys, about all. In doubt, asks the nodes first.

        Raises Unavailable if nothing is known.
        """
        if not self._owners:
            async with self._turn:
                if not self._owners:
                    await self._learn()
        elif self._doubted and not self._turn.locked() and self._now() >= self._again:
            async with self._turn:  # meanwhile other calls use the present view
                with suppress(Unavailable):  # nodes that answer can still be written to
                    await self._learn()
        if self._aside:
            self._expire()
        aside = self._aside
        moving = (key for key in keys if key in aside) if keys else aside
        return View(self._owners, {key: aside[key][0] for key in moving})

    def doubt(self) -> None:
        """The view may be outdated: the nodes are asked again."""
        self._doubted = True

    def moved(self, key: bytes, error: redis_errors.MovedError, said_by: Member) -> None:
        """A slot has another owner. The view changes at once for this slot; the nodes are asked about the others."""
        place = self._place(error, said_by)
        self._aside.pop(key, None)
        member = self._member(place)
        if self._owners[error.slot_id] is not member:
            self._owners = self._owners.copy()
            self._owners[error.slot_id] = member
        self._hint, self._doubted = place, True

    def gone_ahead(self, key: bytes, error: redis_errors.AskError, said_by: Member) -> None:
        """This key has moved to another node, ahead of its slot."""
        member = self._member(self._place(error, said_by))
        self._aside.pop(key, None)
        self._aside[key] = member, self._now() + ASIDE_S
        if len(self._aside) > ASIDE_MAX:
            del self._aside[next(iter(self._aside))]

    async def close(self) -> None:
        for member in self._members.values():
            await member.close()

    # --- asking -----------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        if self._now() < self._again:
            raise Unavailable(
                f"no node of the Redis Cluster knew the slots a moment ago; one said: {self._why}"
            )
        self._again = self._now() + LEARN_EVERY_S
        hint, self._hint = self._hint, None
        others = list(dict.fromkeys([*self._members, *self._address.seeds]))
        self._rotation += ASK_MAX
        start = self._rotation % len(others)
        for places in ([hint] if hint else [], (others[start:] + others[:start])[:ASK_MAX]):
            ranges = await self._first(places)
            if ranges:
                await self._adopt(ranges)
                return
        raise Unavailable(f"no node of the Redis Cluster knows the slots; one says: {self._why}")

    async def _first(self, places: Sequence[Place]) -> list[tuple[int, int, Place]]:
        """The answer of the first node that knows all slots; else the answer that knows the most slots."""
        best: list[tuple[int, int, Place]] = []
        asked = [asyncio.ensure_future(self._ask(place)) for place in places]
        try:
            within = LEARN_S if self._owners else CALL_TIMEOUT_S
            for answer in asyncio.as_completed(asked, timeout=within):
                said = await answer
                best = max(best, said, key=_known)
                if _known(best) == REDIS_CLUSTER_HASH_SLOTS:
                    break
        except TimeoutError:
            pass  # the answers so far must do
        finally:
            for each in asked:
                each.cancel()
        return best

    async def _ask(self, place: Place) -> list[tuple[int, int, Place]]:
        """The node's ranges as (first slot, last slot, owner); empty if the node does not answer."""
        connect = connector(self._address.url(*place))

        async def make() -> Any:
            return connect()

        session = Session(make)
        try:
            [said] = await session.call([("CLUSTER", "SLOTS")])
        except (OSError, redis_errors.RedisError) as e:
            said = e
        finally:
            await session.end()
        if isinstance(said, Exception):
            self._why = text_of(said) if isinstance(said, redis_errors.ResponseError) else told(str(said))
            return []
        return [
            (int(first), int(last), (_named((owner[0] or b"").decode(), place), int(owner[1])))
            for first, last, owner, *_ in said
        ]

    async def _adopt(self, ranges: Iterable[tuple[int, int, Place]]) -> None:
        owners: list[Member | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, place in ranges:
            owners[first : last + 1] = [self._member(place)] * (last + 1 - first)
        if owners != self._owners:  # tokens keep these lists, of 131 KB each: no new list without a change
            self._owners = owners
        self._doubted = None in owners
        staying = View(owners, {key: member for key, (member, _) in self._aside.items()}).homes()
        for member in [each for each in self._members.values() if each not in staying]:
            del self._members[member.place]
            await member.end()  # its tokens are void

    # --- bookkeeping ------------------------------------------------------------------------------------

    def _member(self, place: Place) -> Member:
        member = self._members.get(place)
        if member is None:
            member = self._members[place] = Member(place, self._address.url(*place))
        return member

    @staticmethod
    def _place(error: redis_errors.AskError, said_by: Member) -> Place:
        return _named(error.host, said_by.place), error.port

    def _expire(self) -> None:
        now = self._now()
        for key in [key for key, (_, until) in self._aside.items() if until <= now]:
            del self._aside[key]

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _named(host: str, said_by: Place) -> str:
    """The host that a node names. A node that does not know its own name leaves the host out or says "?"."""
    return said_by[0] if host in {"", "?"} else host


def _known(ranges: Sequence[tuple[int, int, Place]]) -> int:
    return sum(last + 1 - first for first, last, _ in ranges)
