"""Sends commands to single servers, for the handles of clusters and sentinels.

A connection to each server stays open, and is opened anew after the server was restarted. Blocking, for one thread.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, cast

from redis.connection import Connection
from redis.exceptions import RedisError, ResponseError

if TYPE_CHECKING:
    from cacheupdater.local.redis_server import RedisServer

Word: TypeAlias = bytes | str | int
Reply: TypeAlias = bytes | int | list["Reply"] | None
TIMEOUT_S = 5.0  # a server that is frozen or busy; usually an answer takes a tenth of a millisecond


class Telling:
    """The connections of one handle to its servers."""

    def __init__(self) -> None:
        self._connections: dict[int, Connection] = {}

    def tell(self, server: RedisServer, *command: Word) -> Reply:
        """Sends a command. Returns the reply as bytes; raises errors."""
        if server.port in self._connections:
            try:
                return self._exchange(server, command)
            except ResponseError:
                raise
            except (RedisError, OSError):
                pass  # perhaps the server was restarted
        self._forget(server)
        self._connections[server.port] = Connection(  # type: ignore[no-untyped-call]  # redis-py's
            port=server.port,
            protocol=2,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=1.0,
        )
        try:
            return self._exchange(server, command)
        except ResponseError:
            raise
        except (RedisError, OSError):
            self._forget(server)
            raise

    def text(self, server: RedisServer, *command: Word) -> str:
        """The reply, as text."""
        return cast("bytes", self.tell(server, *command)).decode()

    def words(self, server: RedisServer, *command: Word) -> list[str]:
        """The items of a list reply, as text."""
        return [_as_text(each) for each in cast("list[Reply]", self.tell(server, *command))]

    def facts(self, server: RedisServer, *command: Word) -> list[dict[str, str]]:
        """A reply of lists, each with names and values in turn, as dicts."""
        lists = cast("list[list[Reply]]", self.tell(server, *command))
        texts = [[_as_text(each) for each in pairs] for pairs in lists]
        return [dict(zip(pairs[::2], pairs[1::2], strict=True)) for pairs in texts]

    def runs(self, server: RedisServer) -> bool:
        """Whether the server answers."""
        try:
            return bool(self.tell(server, "PING"))
        except (RedisError, OSError):
            return False

    def close(self) -> None:
        """Ends the connections."""
        for connection in self._connections.values():
            _end(connection)
        self._connections.clear()

    def _exchange(self, server: RedisServer, command: tuple[Word, ...]) -> Reply:
        connection = self._connections[server.port]
        connection.send_command(*command, check_health=False)  # type: ignore[no-untyped-call]  # redis-py's
        return cast("Reply", connection.read_response(disable_decoding=True))

    def _forget(self, server: RedisServer) -> None:
        connection = self._connections.pop(server.port, None)
        if connection is not None:
            _end(connection)


def _end(connection: Connection) -> None:
    with suppress(OSError):
        connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py's


def _as_text(reply: Reply) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)
