"""The writer port if one primary has all keys: a single server, or the primary that the sentinels name.

Every unit takes a token before its load, and writes through this module afterwards. A hundred keys share a script call, and a
few calls share one exchange. When the sentinels name another primary, the connections to the former one are closed, which
voids their tokens. The former primary may take writes for some more seconds, but no reader would see them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redis import exceptions as redis_errors

from cacheupdater.adapters.writer_redis import looks
from cacheupdater.adapters.writer_redis.replies import (
    TOO_BIG,
    answers_of,
    is_forbidden,
    is_trouble,
    removal_of,
    said_by,
    text_of,
)
from cacheupdater.adapters.writer_redis.scanning import pages
from cacheupdater.adapters.writer_redis.sentinel import Vote
from cacheupdater.adapters.writer_redis.sessions import CONNECTIONS, Node, Session, connector, one_call
from cacheupdater.core import answers, cache_url
from cacheupdater.errors import Faulty, Forbidden, Misconfigured, Unavailable
from cacheupdater_client.protocol import fence, lease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from cacheupdater.core.answers import Answer
    from cacheupdater.ports import Found
    from cacheupdater_client.protocol.lease import Grace

WINDOW = 4  # chunks sent before their answers are read: at most 4 MiB on the way

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Calls(Generic[T]):
    """Calls of a script for many keys, on one session or on any."""

    script: fence.Script
    parts: Sequence[Sequence[T]]  # one call for each part
    arguments: Callable[[Sequence[T]], Sequence[Any]]
    session: Session | None


class RedisWriter:
    """Redis behind the fence, by URL: redis://, rediss://, unix:// or redis+sentinel://, as `cache_url` says.

    If loads read from replicas of the database, `hold_off_ms` must cover the replicas' lag.
    """

    def __init__(self, url: str, *, connections: int = CONNECTIONS, hold_off_ms: int = 0) -> None:
        self._where = _place(url)
        self._node = Node(self._where.connection, connections=connections)
        self._hold_off_ms = hold_off_ms

    async def token(self, keys: Sequence[bytes] = ()) -> int:  # noqa: ARG002  one server has them all
        """Redis' time now. The token is good for `write` as long as its connection lives."""
        async with one_call():
            await self._leave_a_former_primary()
            token = await self._node.token()
        if isinstance(token, redis_errors.ResponseError):
            raise await self._trouble(text_of(token)) from token
        return token

    async def write(
        self, token: int, entries: fence.Entries, *, form: fence.Form = "type", replace: bool = False
    ) -> Sequence[Answer]:
        """Writes the entries; one answer per entry. All are TOO_OLD if the token's connection is gone, or the token is unknown."""
        await self._leave_a_former_primary()
        session = self._node.session_of(token)
        if session is None:
            return [answers.TOO_OLD] * len(entries)

        def call(some: fence.Entries) -> Sequence[Any]:
            return fence.commit_args(token, some, hold_off_ms=self._hold_off_ms, replace=replace, form=form)

        cuts = list(fence.chunks(entries))
        calls = _Calls(fence.COMMIT, [cut for cut in cuts if _fits(cut)], call, session)
        outcomes = iter(await self._run(calls))
        said: list[Answer] = []
        for cut in cuts:
            if _fits(cut):
                said += answers_of(list(islice(outcomes, len(cut))), token)
            else:
                said.append(TOO_BIG)
        return said

    async def invalidate(
        self,
        keys: Sequence[bytes],
        forms: Mapping[bytes, fence.Form] = fence.NO_FORMS,
        *,
        only_ours: Collection[bytes] = (),
    ) -> Sequence[Answer]:
        """Removes the values and raises their floors. If it raises an error, some keys may be done: the caller repeats all."""

        def call(some: Sequence[bytes]) -> Sequence[Any]:
            return fence.invalidate_args(
                some, hold_off_ms=self._hold_off_ms, forms=forms, only_ours=only_ours
            )

        await self._leave_a_former_primary()
        calls = _Calls(fence.INVALIDATE, list(fence.key_chunks(keys)), call, None)
        return [removal_of(each) for each in await self._run(calls)]

    async def prolong(
        self, keys: Sequence[bytes], grace: Grace, form: fence.Form | None = None
    ) -> Sequence[bool | None]:
        """One more ttl for these values. A key that Redis refuses to prolong has not got more time."""

        def call(some: Sequence[bytes]) -> Sequence[Any]:
            return lease.prolong_args(lease.NO_OWNER, some, grace, form=form)

        await self._leave_a_former_primary()
        calls = _Calls(lease.PROLONG, list(fence.key_chunks(keys)), call, None)
        return [each == lease.PROLONGED for each in await self._run(calls)]

    async def look(self, keys: Sequence[bytes], *, values: bool = False) -> Sequence[Found | None]:
        """What readers of these keys find now."""
        async with one_call():
            await self._leave_a_former_primary()
            replies = await self._node.evaluate(looks.LOOK, looks.calls(keys, values=values))
        return looks.read(replies)

    async def command(self, key: bytes, *command: bytes) -> Any:  # noqa: ARG002  one server has them all
        """The reply to one command about this key, which may run twice."""
        async with one_call():
            await self._leave_a_former_primary()
            _, [reply] = await self._node.ask([command])
        if isinstance(reply, redis_errors.ResponseError):
            raise await self._trouble(text_of(reply)) from reply
        return reply

    def scan(self, prefix: bytes) -> AsyncIterator[Sequence[bytes]]:
        """The keys that begin so, page by page, some perhaps twice."""
        return pages(lambda command: self.command(prefix, *command), prefix)

    async def close(self) -> None:
        """Ends the connections; calls under way and later calls raise Unavailable."""
        await self._node.close()
        await self._where.close()

    async def _run(self, calls: _Calls[T]) -> list[fence.Outcome]:
        """Runs all calls, a window of them in each exchange, and returns the outcomes of all keys.

        If the server refuses a call, its keys are sent again one by one: the reply does not say which key is at fault.
        """
        outcomes: list[fence.Outcome] = []
        for at in range(0, len(calls.parts), WINDOW):
            some = calls.parts[at : at + WINDOW]
            for part, said in zip(some, await self._exchange(calls, some), strict=True):
                if isinstance(said, str):
                    apart = (
                        await self._exchange(calls, [[each] for each in part]) if len(part) > 1 else [said]
                    )
                    for each in apart:
                        outcomes += [fence.Failed(each)] if isinstance(each, str) else each
                else:
                    outcomes += said
        for outcome in outcomes:
            if isinstance(outcome, fence.Failed) and is_trouble(outcome.text):
                raise await self._trouble(outcome.text)
        return outcomes

    async def _exchange(
        self, calls: _Calls[T], parts: Sequence[Sequence[T]]
    ) -> list[Sequence[fence.Outcome] | str]:
        """The outcomes of each part, or the server's words if it refuses the part because of one key."""
        async with one_call():
            window = [calls.arguments(part) for part in parts]
            replies = await self._node.evaluate(calls.script, window, calls.session)
        said: list[Sequence[fence.Outcome] | str] = []
        for reply in replies:
            if not isinstance(reply, redis_errors.ResponseError):
                said.append(said_by(reply))
            elif is_trouble(text := text_of(reply)):
                raise await self._trouble(text) from reply
            else:
                said.append(text)
        return said

    async def _leave_a_former_primary(self) -> None:
        """Costs nothing where the server is always at the same place."""
        if isinstance(self._where, Vote):
            async with one_call():
                if await self._where.has_changed():
                    await self._node.end()

    async def _trouble(self, text: str) -> Unavailable | Faulty:
        """The error for the server's words. The connections to a demoted server are closed: its name may lead elsewhere by now."""
        if "READONLY" in text:
            await self._node.end()
        if text.startswith("MOVED"):
            return Unavailable(
                f"this Redis is a node of a cluster, write redis+cluster:// in its URL: {text}"
            )
        if is_forbidden(text):
            return Forbidden(f"Redis refuses for now: {text}")
        if is_trouble(text):
            return Unavailable(f"Redis refuses for now: {text}")
        return Faulty(f"Redis does not accept this call: {text}")


class _Fixed:
    """A server whose address never changes."""

    def __init__(self, url: str) -> None:
        self._connect = connector(url)

    async def connection(self) -> Any:
        return self._connect()

    async def close(self) -> None:
        """Nothing is open."""


def _place(url: str) -> _Fixed | Vote:
    try:
        address = cache_url.parse(url)
    except Misconfigured as e:
        raise Misconfigured(cache_url.unusable(e)) from e
    if isinstance(address, cache_url.Cluster):
        raise Misconfigured("this writer does not follow a cluster; ClusterWriter does")
    return _Fixed(url) if isinstance(address, cache_url.One) else Vote(address)


def _fits(cut: fence.Entries) -> bool:
    """Whether the cut fits into a call. An entry that is too big for any call is a cut of its own."""
    return len(cut) > 1 or fence.fits(cut[0])
