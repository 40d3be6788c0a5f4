"""Connections by psycopg2, made and used in threads, each with a deadline.

`Questions` is one plain connection: it asks what the catalogue says, and makes and drops slots. `replicating` makes the
connection on which `stream` reads. psycopg2 blocks while it connects and asks, so a thread does that. A thread that is too slow
is left behind, and closes what it was working on. The driver is an extra, so it is imported only here, when it is used.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from cacheupdater.adapters.feed_replication.failures import of_server
from cacheupdater.adapters.feed_replication.settings import connection_arguments, replication_arguments
from cacheupdater.errors import Misconfigured, Unavailable
from cacheupdater.packages import PSYCOPG2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from cacheupdater.adapters.feed_replication.settings import Settings

T = TypeVar("T")

GRACE_S = 1.0  # the server ends a slow statement itself and keeps the connection, so we wait this much longer


def driver() -> ModuleType:
    """psycopg2, with its replication."""
    try:
        import psycopg2.extras  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise Misconfigured(f"changes: replication needs psycopg2: pip install {PSYCOPG2}") from None
    module: ModuleType = psycopg2
    return module


async def in_thread(work: Callable[[], T], deadline: float, left: Callable[[T], None]) -> T:
    """The result of blocking work. If it takes too long, or nobody waits for it any more, `left` gets what it makes."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.done():
            if error is None:
                left(result)  # type: ignore[arg-type]  # without an error there is a result
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # as above

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as e:  # noqa: BLE001  it is raised where it is awaited
            error = e
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:  # the loop is closed
            if error is None:
                left(result)  # type: ignore[arg-type]  # as above

    threading.Thread(target=run, daemon=True, name="cacheupdater-feed").start()
    async with asyncio.timeout(deadline):
        return await done


async def replicating(settings: Settings, command: Callable[[Any], None]) -> tuple[Any, Any]:
    """A connection and its cursor on which `command` has begun the replication. psycopg2's own errors are passed on."""
    psycopg2 = driver()
    arguments = replication_arguments(settings)

    def connect() -> tuple[Any, Any]:
        factory = psycopg2.extras.LogicalReplicationConnection
        connection = psycopg2.connect(connection_factory=factory, **arguments)
        try:
            cursor = connection.cursor()
            command(cursor)
        except BaseException:
            connection.close()
            raise
        return connection, cursor

    # twice: to connect, and to begin; a slot whose transactions are many takes longer to find its place
    deadline = 2 * settings.statement_timeout + GRACE_S
    try:
        return await in_thread(connect, deadline, lambda made: made[0].close())
    except TimeoutError:
        raise Unavailable(f"the database did not begin to replicate within {deadline:.3g} s") from None


class Questions:
    """One plain connection, opened by the first question, and again after one that failed. One question at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Any = None
        self._turn = asyncio.Lock()

    async def ask(
        self, statement: str, parameters: Sequence[object] = (), *, deadline: float | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of one statement, which is a transaction of its own. `deadline` in seconds; psycopg2's own errors are passed on.

        Raises Unavailable if the server does not answer in time.
        """
        # the connection may have to be made first
        limit = self._settings.statement_timeout + (deadline or self._settings.statement_timeout) + GRACE_S
        async with self._turn:
            connection, self._connection = self._connection, None
            held = [connection]

            def work() -> list[tuple[Any, ...]]:
                held[0] = held[0] or self._connected()
                return _rows(held[0], statement, parameters, deadline)

            try:
                rows = await in_thread(work, limit, lambda _: _close(held[0]))
            except TimeoutError:
                raise Unavailable(f"no answer from the database within {limit:.3g} s") from None
            except asyncio.CancelledError:
                _cancel(held[0])
                raise
            except driver().Error as e:
                if deadline is None and getattr(e, "pgcode", None) and not held[0].closed:
                    self._connection = held[0]  # the server has answered, so the connection is sound
                else:
                    _close(held[0])
                raise
            self._connection = held[0]
            return rows

    async def asked(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """As `ask`, with our own errors."""
        try:
            return await self.ask(statement, parameters)
        except driver().Error as e:
            raise of_server(e) from None

    def close(self) -> None:
        """Ends the connection. A later question opens another."""
        connection, self._connection = self._connection, None
        _close(connection)

    def _connected(self) -> Any:
        connection = driver().connect(**connection_arguments(self._settings))
        connection.autocommit = True
        return connection


def _rows(
    connection: Any, statement: str, parameters: Sequence[object], deadline: float | None
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        if deadline is not None:
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, false)", (f"{round(deadline * 1000)}",)
            )
        cursor.execute(statement, tuple(parameters) or None)  # None: a % in the statement is no placeholder
        rows = cursor.fetchall() if cursor.description else []
        if deadline is not None:
            cursor.execute("RESET statement_timeout")
        return rows


def _close(connection: Any) -> None:
    if connection is not None:
        with suppress(Exception):
            connection.close()


def _cancel(connection: Any) -> None:
    """Asks the server to end what it does for us; the thread that waits for it then closes the connection."""
    if connection is not None:
        threading.Thread(target=lambda: _quietly(connection.cancel), daemon=True).start()


def _quietly(call: Callable[[], object]) -> None:
    with suppress(Exception):
        call()
