"""A few connections to one server, and the fence's calls over them.

Each writer of this package has a `Node` per server. A token is a reading of one server's clock, so it is good only on the
connection that read it. A *session* is the life of one socket; the tokens of a session end with it. A restarted or replaced
server therefore never sees a token of another clock.

The connections have settings of our own. The usual settings of applications (long timeouts, ten retries) would hold up every
unit behind one server that hangs; here every call ends after half a second. Not done here: which server has a key, retries of
writes, the meaning of answers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from redis import exceptions as redis_errors
from redis.asyncio.connection import ConnectionPool

from cacheupdater import masking
from cacheupdater.answer_time import AnswerTime
from cacheupdater.core import cache_url
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater_client.protocol import fence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

_pack: Callable[[tuple[Any, ...]], bytes] | None
try:
    from hiredis import pack_command

    _pack = (
        pack_command  # 40 ns per argument; redis-py's asyncio connection packs in Python, ten times slower
    )
except ImportError:
    _pack = None

# for the connect and the answer together; a token and a write then leave a head 2 of its 3 seconds
CALL_TIMEOUT_S = 0.5
CONNECT_TIMEOUT_S = 0.3  # so that a connect leaves time for the call
CONNECTIONS = 4  # two to four batches in flight saturate a Redis core
TOGETHER_BYTES = (
    65_536  # calls that are sent along with another one: Redis takes so much in one read or a few
)
TOKENS_MAX = 16_384  # tokens remembered: far more loads than can be under way within load_age

ASKING = ("ASKING",)
_LOST = "the connection was lost"


def connector(url: str) -> Callable[[], Any]:
    """A function that makes connections, not open yet. Raises Misconfigured if redis-py cannot read the URL."""
    try:
        # RESP2: nothing here needs more, and RESP3 would turn on redis-py's relaxed timeouts during maintenance
        pool: Any = ConnectionPool.from_url(
            url, protocol=2, socket_timeout=None, socket_connect_timeout=CONNECT_TIMEOUT_S
        )
        pool.connection_kwargs["decode_responses"] = False  # even if the URL says otherwise: we read bytes
        pool.make_connection()
    except (ValueError, TypeError, redis_errors.RedisError) as e:
        raise Misconfigured(cache_url.unusable(e)) from e
    connect: Callable[[], Any] = pool.make_connection
    return connect


class _Waiting(NamedTuple):
    """A call that waits while another one uses the connection."""

    commands: Sequence[Sequence[Any]]
    replies: asyncio.Future[list[Any] | None]  # None: it is this call's turn to send


class Session:
    """The life of one socket. After the first error the session is over, and is never used again.

    Calls take turns. Whoever has the turn sends small calls that wait along with its own. So the busier a connection is, the
    less an exchange costs: an updater with thousands of units of one key a second makes far fewer exchanges than units.
    """

    def __init__(self, make: Callable[[], Awaitable[Any]]) -> None:
        self._make = make
        self._connection: Any = None  # redis-py's own: half of it has no types
        self._waiting: deque[_Waiting] = deque()
        self.is_busy = False
        self.over = False

    @property
    def is_new(self) -> bool:
        return not self.over and self._connection is None

    async def call(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Sends these commands; one reply per command. An error reply is returned, not raised."""
        if self.is_busy:
            replies = await self._wait(commands)
            if replies is not None:
                return replies
        self.is_busy = True
        try:
            return await self._exchange(commands)
        finally:
            self._pass_on()

    async def _wait(self, commands: Sequence[Sequence[Any]]) -> list[Any] | None:
        waiting = _Waiting(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await waiting.replies
        except asyncio.CancelledError:
            replies = waiting.replies
            if not replies.cancelled() and replies.exception() is None and replies.result() is None:
                self._pass_on()  # cancelled just when its turn had come
            raise

    def _pass_on(self) -> None:
        """The next call that waits has the turn. If the session is over, all that wait fail."""
        self.is_busy = False
        while self._waiting and not self.is_busy:
            replies = self._waiting.popleft().replies
            if replies.done():
                continue  # it has been cancelled
            if self.over:
                replies.set_exception(redis_errors.ConnectionError(_LOST))
            else:
                self.is_busy = True
                replies.set_result(None)

    async def _exchange(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Sends these commands, and those that wait as far as there is room, in one piece."""
        if self.over:
            raise redis_errors.ConnectionError(_LOST)
        others: list[_Waiting] = []
        try:
            connection = self._connection or await self._connect()
            packed = self._packed(commands)
            others = self._fitting(packed)
            await connection.send_packed_command(packed, check_health=False)
            replies = [await self._reply(connection) for _ in commands]
            for other in others:
                said = [await self._reply(connection) for _ in other.commands]
                if not other.replies.done():
                    other.replies.set_result(said)
        except BaseException:  # a cancelled call too: an unread reply would answer the next command
            await self.end()
            self._waiting.extendleft(each for each in others if not each.replies.done())
            raise
        return replies

    def _fitting(self, packed: list[bytes]) -> list[_Waiting]:
        """The calls that are sent along: their commands are packed too."""
        fitting: list[_Waiting] = []
        room = TOGETHER_BYTES - sum(map(len, packed))
        while self._waiting and room > 0:
            waiting = self._waiting[0]
            if not waiting.replies.done():
                more = self._packed(waiting.commands)
                room -= sum(map(len, more))
                if room < 0:
                    break
                packed += more
                fitting.append(waiting)
            self._waiting.popleft()
        return fitting

    async def _connect(self) -> Any:
        self._connection = await self._make()
        await self._connection.connect()
        return self._connection

    def _packed(self, commands: Sequence[Sequence[Any]]) -> list[bytes]:
        if _pack is not None:
            return [_pack(tuple(command)) for command in commands]
        return [piece for command in commands for piece in self._connection.pack_command(*command)]

    async def _reply(self, connection: Any) -> Any:
        try:
            return await connection.read_response()
        except redis_errors.ResponseError as e:
            return e

    async def end(self) -> None:
        """Ends the session and closes its socket at once."""
        self.over = True
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)


class Node:
    """One server, and the tokens that it gave. It raises redis-py's errors; callers turn them into ours with `one_call`."""

    def __init__(self, make: Callable[[], Awaitable[Any]], *, connections: int = CONNECTIONS) -> None:
        """`make` finds the server and makes a connection to it that is not open yet."""
        self._make = make
        self._sessions = [Session(make) for _ in range(connections)]
        self._next = 0
        # ordered: the first entry of a dict is behind all entries that were ever deleted before it
        self._issued: OrderedDict[int, Session] = OrderedDict()
        self._closed = False

    async def token(self) -> int | redis_errors.ResponseError:
        """The server's time now, as a token; or the server's error."""
        session, [time] = await self.ask([("TIME",)])
        if isinstance(time, redis_errors.ResponseError):
            return time
        token = fence.token_of(int(time[0]), int(time[1]))
        while token in self._issued:  # two sessions may read the same microsecond
            token += 1000
        self._issued[token] = session
        if len(self._issued) > TOKENS_MAX:
            self._issued.popitem(last=False)
        return token

    def session_of(self, token: int) -> Session | None:
        """The session on which the token is good; None once that session is over."""
        session = self._issued.get(token)
        return None if session is None or session.over else session

    async def evaluate(
        self,
        script: fence.Script,
        calls: Sequence[Sequence[Any]],
        session: Session | None = None,
        *,
        asking: bool = False,
    ) -> list[Any]:
        """Runs the script for each of these calls, on this session or on any; one reply per call.

        A server that does not know the script gets it, and then again only the calls that it did not run. `asking` tells a node
        of a cluster that another node has redirected these keys to it.
        """
        window = [("EVALSHA", script.sha, *args) for args in calls]
        if session is None:
            session, replies = await self.ask(_sent(window, asking=asking))
        else:
            replies = await session.call(_sent(window, asking=asking))
        replies = replies[int(asking) :: 1 + asking]
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, redis_errors.NoScriptError)]
        if unknown:
            load = ("SCRIPT", "LOAD", script.text)
            loaded, *again = await session.call(
                [load, *_sent([window[i] for i in unknown], asking=asking)],
            )
            for i, reply in zip(unknown, again[int(asking) :: 1 + asking], strict=True):
                replies[i] = loaded if isinstance(loaded, redis_errors.ResponseError) else reply
        return replies

    async def ask(self, commands: Sequence[Sequence[Any]]) -> tuple[Session, list[Any]]:
        """Sends the commands on any session. They may be sent twice, so they must do no harm when they run twice."""
        if self._closed:
            raise Unavailable("the writer is closed")
        session = self._pick()
        was_new = session.is_new
        try:
            return session, await session.call(commands)
        except redis_errors.ConnectionError:
            if was_new:
                raise
        # Redis has closed this idle connection, and perhaps the others too: try once more on a new one
        session = self._pick(new=True)
        return session, await session.call(commands)

    async def end(self) -> None:
        """Ends the connections, and thereby all tokens. The next call makes new connections."""
        for session in self._sessions:
            await session.end()

    async def close(self) -> None:
        """Ends the connections for good: calls under way and later calls raise Unavailable."""
        self._closed = True
        await self.end()

    def _pick(self, *, new: bool = False) -> Session:
        """The next idle session, else the next one. A session that is over is replaced by a new one."""
        self._sessions = [Session(self._make) if each.over else each for each in self._sessions]
        self._next = (self._next + 1) % len(self._sessions)
        order = self._sessions[self._next :] + self._sessions[: self._next]
        return next((each for each in order if (each.is_new if new else not each.is_busy)), order[0])


def _sent(window: Sequence[Sequence[Any]], *, asking: bool) -> Sequence[Sequence[Any]]:
    return [command for call in window for command in (ASKING, call)] if asking else window


@asynccontextmanager
async def one_call() -> AsyncIterator[None]:
    """Limits the time of one exchange, and turns its failures into Unavailable."""
    try:
        async with AnswerTime(CALL_TIMEOUT_S):
            yield
    except (TimeoutError, redis_errors.TimeoutError) as e:
        raise Unavailable(f"Redis did not answer within {CALL_TIMEOUT_S:g} s") from e
    except (OSError, redis_errors.RedisError) as e:
        raise Unavailable(f"Redis cannot be used: {masking.foreign(str(e))}") from e
