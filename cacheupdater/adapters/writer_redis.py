"""The writer port over a real Redis: tokens, fenced writes in chunks, invalidations.

The composition root makes one `RedisWriter` per cache; every unit asks it for a token before its load and writes
through it afterwards. It owns a few connections of its own, because the application's habits (long timeouts, ten
retries) would hold up every unit behind one hung server: here a call is over after half a second, whatever happens.

A token is a reading of one server's clock, so it is good only on the connection that read it: a *session* is one
socket's life, and when it is over, so are its tokens (answer: too old, load again). A restarted or replaced server
therefore never sees a token of the clock before it.

Not done here: retries of writes (a failed write is a new load), encoding, cluster routing, the length of pauses.

The least that an ACL user needs from Redis 6.2 on, for keys `product:*` (what the scripts call is checked too):
    ~product:* ~__crs:* -@all +time +evalsha +script|load
    +get +set +pexpire +unlink +type +hgetall +hset +hdel, and +select for a database other than 0
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors
from redis.asyncio.connection import ConnectionPool

from cacheupdater.core import answers
from cacheupdater.core.answers import Answer, Result
from cacheupdater.errors import Faulty, Misconfigured, Unavailable
from cacheupdater_client import fence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from cacheupdater.ports import Entry

_pack: Callable[[tuple[Any, ...]], bytes] | None
try:
    from hiredis import pack_command

    _pack = pack_command  # 40 ns an argument; redis-py's asyncio connection packs in Python, ten times slower
except ImportError:
    _pack = None

# connecting and the answer together; a token and a write leave a head 2 of its 3 seconds
CALL_TIMEOUT_S = 0.5
CONNECT_TIMEOUT_S = 0.3  # so that a connect leaves time for the call
CONNECTIONS = 4  # two to four batches in flight saturate a Redis core
WINDOW = 4  # chunks sent before their answers are read: at most 4 MiB on the way
TOKENS_MAX = 16_384  # tokens remembered: far more loads than can be under way within load_age

_ANSWERS: dict[fence.Outcome, Answer] = {
    fence.WRITTEN: answers.WRITTEN,
    fence.UNCHANGED: answers.UNCHANGED,
    fence.DUPLICATE: answers.DUPLICATE,
    fence.TOO_OLD: answers.TOO_OLD,
    fence.WRONG_TYPE: answers.WRONG_TYPE,
}
_TOO_BIG = Answer(Result.FAILED, why="too big: a key may have 1 KiB, a value 1 MiB")

# Errors of the server, not of a key. Redis 6.2 wraps them in a line of its own, so they are looked for anywhere.
_SERVER_TROUBLE = re.compile(
    r"\b(OOM|READONLY|LOADING|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MOVED|ASK|BUSY|NOPERM|NOAUTH)\b"
    r"|no permission|user executing the script can't"
)

_CODES = {
    redis_errors.OutOfMemoryError: "OOM",
    redis_errors.ReadOnlyError: "READONLY",
    redis_errors.NoPermissionError: "NOPERM",
    redis_errors.MasterDownError: "MASTERDOWN",
    redis_errors.ClusterDownError: "CLUSTERDOWN",
    redis_errors.TryAgainError: "TRYAGAIN",
    redis_errors.MovedError: "MOVED (this is a node of a cluster, which this writer does not follow)",
    redis_errors.AskError: "ASK",
}


class _Session:
    """One socket's life. Commands take turns; after the first trouble it is over and never used again."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection  # redis-py's own: half of it has no types
        self._turn = asyncio.Lock()
        self.over = False

    @property
    def is_new(self) -> bool:
        return not self.over and not self._connection.is_connected

    @property
    def is_busy(self) -> bool:
        return self._turn.locked()

    async def call(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """One reply per command; an error reply is returned, not raised."""
        async with self._turn:
            if self.over:
                raise redis_errors.ConnectionError("the connection was lost")
            try:
                if not self._connection.is_connected:
                    await self._connection.connect()
                packed = [piece for command in commands for piece in self._packed(command)]
                await self._connection.send_packed_command(packed, check_health=False)
                return [await self._reply() for _ in commands]
            except BaseException:  # a cancelled call too: a reply left unread would answer the next command
                await self.end()
                raise

    def _packed(self, command: Sequence[Any]) -> Sequence[bytes]:
        return self._connection.pack_command(*command) if _pack is None else (_pack(tuple(command)),)

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except redis_errors.ResponseError as e:
            return e

    async def end(self) -> None:
        """Closes the socket at once."""
        self.over = True
        await self._connection.disconnect(nowait=True)


class RedisWriter:
    """Redis behind the fence, by URL: redis://, rediss://, unix://; user, password and TLS files in the URL.

    `hold_off_ms` must cover the lag of replicas, if loads read from them. With `replace`, a value of another type at
    a key gives way; without, it stays and the answer is wrong type.
    """

    def __init__(
        self, url: str, *, connections: int = CONNECTIONS, hold_off_ms: int = 0, replace: bool = False
    ) -> None:
        try:
            # RESP2: nothing here needs more, and it keeps redis-py's relaxed maintenance timeouts away
            self._pool: Any = ConnectionPool.from_url(
                url, protocol=2, socket_timeout=None, socket_connect_timeout=CONNECT_TIMEOUT_S
            )
            self._sessions = [self._new_session() for _ in range(connections)]
        except (ValueError, TypeError, redis_errors.RedisError) as e:
            raise Misconfigured(f"the Redis URL cannot be used: {e}") from e
        self._hold_off_ms = hold_off_ms
        self._replace = replace
        self._next = 0
        self._issued: dict[int, _Session] = {}
        self._closed = False

    async def token(self) -> int:
        """Redis' time now. Good for `write` as long as its connection lives."""
        async with self._one_call():
            session, [time] = await self._ask([("TIME",)])
        if isinstance(time, redis_errors.ResponseError):
            raise await self._trouble(_text_of(time)) from time
        token = fence.token_of(int(time[0]), int(time[1]))
        while token in self._issued:  # two sessions may read the same microsecond
            token += 1000
        self._issued[token] = session
        if len(self._issued) > TOKENS_MAX:
            del self._issued[next(iter(self._issued))]
        return token

    async def write(self, token: int, entries: Sequence[Entry]) -> Sequence[Answer]:
        """One answer per entry. All are too old when the token's connection is gone, or it was never ours."""
        session = self._issued.get(token)
        if session is None or session.over:
            return [answers.TOO_OLD] * len(entries)
        cuts = list(fence.chunks(entries))
        calls = [
            fence.commit_args(token, cut, hold_off_ms=self._hold_off_ms, replace=self._replace)
            for cut in cuts
            if _fits(cut)
        ]
        outcomes = iter(await self._run(fence.COMMIT, calls, session))
        said: list[Answer] = []
        for cut in cuts:
            if _fits(cut):
                said += [_ANSWERS.get(each) or _explain(each, token) for each in islice(outcomes, len(cut))]
            else:
                said.append(_TOO_BIG)
        return said

    async def invalidate(self, keys: Sequence[bytes]) -> None:
        """Removes the values and raises their floors. When it raises, some of the keys may be done: do all again."""
        calls = [
            fence.invalidate_args(chunk, hold_off_ms=self._hold_off_ms) for chunk in fence.key_chunks(keys)
        ]
        for outcome in await self._run(fence.INVALIDATE, calls, None):
            if isinstance(outcome, fence.Failed):
                raise Faulty(f"Redis could not invalidate a key: {outcome.text}")

    async def close(self) -> None:
        """Ends the connections; calls under way and later ones are unavailable."""
        self._closed = True
        await self._end_sessions()

    # --- calls ------------------------------------------------------------------------------------------

    async def _run(
        self, script: fence.Script, calls: Sequence[Sequence[Any]], session: _Session | None
    ) -> list[fence.Outcome]:
        """The outcomes of all calls, a window of them in each exchange; `None` = on any connection."""
        outcomes: list[fence.Outcome] = []
        for at in range(0, len(calls), WINDOW):
            window = [("EVALSHA", script.sha, *args) for args in calls[at : at + WINDOW]]
            async with self._one_call():
                for reply in await self._evaluate(script, window, session):
                    if isinstance(reply, redis_errors.ResponseError):
                        raise await self._trouble(_text_of(reply)) from reply
                    outcomes += fence.outcomes(reply)
        for outcome in outcomes:
            if isinstance(outcome, fence.Failed) and _SERVER_TROUBLE.search(outcome.text):
                raise await self._trouble(outcome.text)
        return outcomes

    async def _evaluate(
        self, script: fence.Script, window: Sequence[Sequence[Any]], session: _Session | None
    ) -> list[Any]:
        """The replies; a server that does not know the script gets it, and again only what it did not run."""
        if session is None:
            session, replies = await self._ask(window)
        else:
            replies = await session.call(window)
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, redis_errors.NoScriptError)]
        if unknown:
            load = ("SCRIPT", "LOAD", script.text)
            loaded, *again = await session.call([load, *(window[i] for i in unknown)])
            for i, reply in zip(unknown, again, strict=True):
                replies[i] = loaded if isinstance(loaded, redis_errors.ResponseError) else reply
        return replies

    async def _ask(self, commands: Sequence[Sequence[Any]]) -> tuple[_Session, list[Any]]:
        """The replies of any connection. What is asked here does no harm when it is done twice."""
        if self._closed:
            raise Unavailable("the writer is closed")
        session = self._pick()
        was_new = session.is_new
        try:
            return session, await session.call(commands)
        except redis_errors.ConnectionError:
            if was_new:
                raise
        # Redis had closed this idle connection in the meantime, and others perhaps too: once more on a new one
        session = self._pick(new=True)
        return session, await session.call(commands)

    def _pick(self, *, new: bool = False) -> _Session:
        """The next idle session, or just the next; a session that is over gives its place to a new one."""
        self._sessions = [self._new_session() if each.over else each for each in self._sessions]
        self._next = (self._next + 1) % len(self._sessions)
        order = self._sessions[self._next :] + self._sessions[: self._next]
        return next((each for each in order if (each.is_new if new else not each.is_busy)), order[0])

    def _new_session(self) -> _Session:
        return _Session(self._pool.make_connection())

    # --- trouble ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _one_call(self) -> AsyncIterator[None]:
        """Bounds one exchange and tells its failures in our words."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                yield
        except (TimeoutError, redis_errors.TimeoutError) as e:
            raise Unavailable(f"Redis did not answer within {CALL_TIMEOUT_S:g} s") from e
        except redis_errors.RedisError as e:
            raise Unavailable(f"Redis cannot be used: {e}") from e

    async def _trouble(self, text: str) -> Unavailable | Faulty:
        """The error for what the server said. A demoted server is left: its name may lead elsewhere by now."""
        if "READONLY" in text:
            await self._end_sessions()
        if _SERVER_TROUBLE.search(text):
            return Unavailable(f"Redis refuses for now: {text}")
        return Faulty(f"Redis does not accept this call: {text}")

    async def _end_sessions(self) -> None:
        for session in self._sessions:
            await session.end()


def _fits(cut: fence.Entries) -> bool:
    """What is too big for any call is a cut of its own."""
    return len(cut) > 1 or fence.fits(cut[0])


def _text_of(error: redis_errors.ResponseError) -> str:
    """What the server said, with the code that redis-py turns into a type and takes away."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return f"{code} {error}"
    return str(error)


def _explain(outcome: fence.Outcome, token: int) -> Answer:
    """The answer that carries more than its name."""
    if isinstance(outcome, fence.Refused):
        return Answer(Result.REFUSED, wait=outcome.wait_after(token))
    if isinstance(outcome, fence.Failed):
        return Answer(Result.FAILED, why=outcome.text)
    raise Faulty(f"Redis gave an answer that no script of ours gives: {outcome}")
