"""One replication connection: reads messages without blocking, and tells the server what is confirmed.

`feed` opens a `Stream` when it is its turn, and closes it with the turn. The server lets one process at a time read a slot, so
the open connection is the turn. The event loop watches the socket only while somebody waits for a message. Whoever does not read
leaves the messages in the socket, and the server waits.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cacheupdater.adapters.feed_replication.catalogue import quoted
from cacheupdater.adapters.feed_replication.connections import replicating
from cacheupdater.adapters.feed_replication.settings import encrypted

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from cacheupdater.adapters.feed_replication.settings import Settings

MESSAGES_SINCE = 140_000  # the version whose pgoutput tells messages: 14
_STATUS_S = 3600  # seconds: psycopg2 would tell the server by itself; `feed` does
# Tries to read until a stream counts as dry. With TLS up to 16 KiB lie decrypted where no socket shows them, and each try
# takes 8 KiB at least
_TRIES, _TRIES_WITH_TLS = 1, 3


class Stream:
    """The messages of one slot."""

    def __init__(self, connection: Any, cursor: Any, *, tries: int) -> None:
        self._connection = connection
        self._cursor = cursor
        self._tries = tries
        self._spoken = True  # it has just answered
        self._watched = False
        self._loop = asyncio.get_running_loop()
        self.has_messages: bool = connection.server_version >= MESSAGES_SINCE

    @classmethod
    async def opened(cls, settings: Settings) -> Self:
        """The stream of the slot. psycopg2's own errors are passed on; raises Unavailable if the server does not answer."""

        def command(cursor: Any) -> None:
            options = {"proto_version": "1", "publication_names": quoted(settings.publication)}
            if cursor.connection.server_version >= MESSAGES_SINCE:
                options["messages"] = "true"
            cursor.start_replication(
                slot_name=settings.slot, options=options, decode=False, status_interval=_STATUS_S
            )

        connection, cursor = await replicating(settings, command)
        return cls(connection, cursor, tries=_TRIES_WITH_TLS if encrypted(settings) else _TRIES)

    def read(self) -> Any | None:
        """The next message, or None if there is none now."""
        for _ in range(self._tries):
            message = self._cursor.read_message()
            if message is not None:
                self._spoken = True
                return message
        return None

    def spoken(self) -> bool:
        """Whether the server has said anything since the last call, be it an answer to `tell`."""
        spoken = self._spoken or self._cursor.io_timestamp != self._cursor.feedback_timestamp
        self._spoken = False
        return spoken

    def tell(self, place: int, *, ask: bool) -> None:
        """Tells the server that all up to this place need not come again, and may ask for an answer."""
        self._spoken = self._spoken or self._cursor.io_timestamp != self._cursor.feedback_timestamp
        self._cursor.send_feedback(flush_lsn=place, reply=ask, force=True)

    def when_readable(self, call: Callable[[], object]) -> None:
        """Calls once when a message may have come."""

        def ready() -> None:
            self.unwatch()
            call()

        self._watched = True
        self._loop.add_reader(self._connection.fileno(), ready)

    def unwatch(self) -> None:
        """Forgets the call."""
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._connection.fileno())

    def close(self) -> None:
        """Ends the connection, and with it the turn."""
        with suppress(Exception):
            self.unwatch()
        with suppress(Exception):
            self._connection.close()
