"""One command to one server: how the handles of clusters and sentinels speak to what they started.

A connection to each server stays open and is made anew when the server was. Blocking, for one thread.
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
    """What one handle has to say to its servers."""

    def __init__(self) -> None:
        self._connections: dict[int, Connection] = {}

    def tell(self, server: RedisServer, *command: Word) -> Reply:
        """The reply as bytes. Errors are raised."""
        if server.port in self._connections:
            try:
                return self._told(server, command)
            except ResponseError:
                raise
            except (RedisError, OSError):
                pass  # the server was started anew, perhaps
        self._forget(server)
        self._connections[server.port] = Connection(  # type: ignore[no-untyped-call]  # redis-py's
            port=server.port,
            protocol=2,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=1.0,
        )
        try:
            return self._told(server, command)
        except ResponseError:
            raise
        except (RedisError, OSError):
            self._forget(server)
            raise

    def text(self, server: RedisServer, *command: Word) -> str:
        """A reply that is text."""
        return cast("bytes", self.tell(server, *command)).decode()

    def words(self, server: RedisServer, *command: Word) -> list[str]:
        """A reply that is a list; what stands in it, as text."""
        return [_as_text(each) for each in cast("list[Reply]", self.tell(server, *command))]

    def facts(self, server: RedisServer, *command: Word) -> list[dict[str, str]]:
        """A reply that is a list of lists, of names and what they are in turn."""
        lists = cast("list[list[Reply]]", self.tell(server, *command))
        texts = [[_as_text(each) for each in pairs] for pairs in lists]
        return [dict(zip(pairs[::2], pairs[1::2], strict=True)) for pairs in texts]

    def runs(self, server: RedisServer) -> bool:
        """Whether it answers."""
        try:
            return bool(self.tell(server, "PING"))
        except (RedisError, OSError):
            return False

    def close(self) -> None:
        """Ends the connections."""
        for connection in self._connections.values():
            _end(connection)
        self._connections.clear()

    def _told(self, server: RedisServer, command: tuple[Word, ...]) -> Reply:
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
