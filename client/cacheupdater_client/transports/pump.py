"""An event loop that runs only while a caller pumps it, a few milliseconds at a time.

A library made for asyncio (aiokafka) works here without a thread or an event loop of the application: a link starts
work and pumps in each of its turns. Unfinished work continues in the next turn. A pump lives as long as one connection to a
cluster. It knows nothing of Kafka.

An ordinary loop fails three requirements. A turn must end, whatever hangs. `close` must end, and must leave nothing behind
that prints a warning later. After a fork, the child's copy must be let go without running a single line of it, for the fork
may have come in the middle of anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import selectors
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LEAVE_S = 0.05  # for each step of leaving: a goodbye that a living peer answers in one round trip
_TRIES = 3  # at an end: while a process stands still, a whole try may pass before any connection is cut

log = logging.getLogger("cacheupdater_client")
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Pump:
    """An event loop of its own, and the work started in it. Any thread may call it, one at a time."""

    def __init__(self) -> None:
        # Not epoll: that is one kernel object for parent and child, and what a child removed from it would be gone for
        # the parent too.
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
        self._loop = _Loop(self._selector)
        self._loop.set_debug(False)  # python -X dev would have it print how long each step took
        self._loop.set_exception_handler(_note)
        self._loop.set_default_executor(_Aside())
        self._work: set[asyncio.Task[None]] = set()
        self._pid = os.getpid()
        self.error: BaseException | None = None  # the first that any work ended with

    @property
    def busy(self) -> bool:
        """Whether something that was started has not ended."""
        return bool(self._work)

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Starts work, which proceeds while the pump runs."""
        task = self._loop.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        self.error = self.error or error
        if not self._work:
            self._loop.stop()

    def run(self, seconds: float) -> None:
        """Runs until all work has ended, for at most so long. Without work it runs once, for callbacks that are due."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._run(seconds)
        else:  # the application closes us from within a coroutine, and a thread runs one loop at a time
            aside = threading.Thread(target=self._run, args=(seconds,), daemon=True)
            aside.start()
            aside.join()

    def _run(self, seconds: float) -> None:
        timer = self._loop.call_later(seconds, self._loop.stop)
        if not self._work:
            self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()
        timer.cancel()

    def close(self, farewell: Callable[[], Coroutine[object, object, None]]) -> None:
        """Ends the loop within some 0.1 s: by `farewell` if that is fast enough, otherwise by force."""
        if os.getpid() != self._pid:
            self._abandon()
            return
        end = self.start(self._end(farewell))
        for _ in range(_TRIES):
            self.run(3 * LEAVE_S)
            if end.done():
                break
        self._loop.close()

    async def _end(self, farewell: Callable[[], Coroutine[object, object, None]]) -> None:
        goodbye = asyncio.ensure_future(farewell())
        await asyncio.wait([goodbye], timeout=LEAVE_S)
        for transport in list(self._loop.opened):
            transport.abort()
        for _ in range(3):  # readers learn of the end, their connections close
            await asyncio.sleep(0)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=LEAVE_S)

    def _abandon(self) -> None:
        """In a forked child. No line of the loop, of TLS or of a finalizer may run: the sockets are the parent's.

        So our descriptors are turned into those of a dead socket, which leaves the parent's connections alone. The objects
        get a reference that is never given back. That costs a child some kilobytes, once.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        dead, peer = socket.socketpair()
        peer.close()
        for descriptor in list(self._selector.get_map()):
            with contextlib.suppress(OSError):
                os.dup2(dead.fileno(), descriptor, inheritable=False)
        dead.close()


def _note(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Logs what asyncio would print."""
    log.debug("in the loop of a link: %s", context.get("message"))


class _Loop(asyncio.SelectorEventLoop):
    """Records the connections that it opens, so that they can be cut."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        super().__init__(selector)
        self.opened: WeakSet[asyncio.WriteTransport] = WeakSet()

    async def create_connection(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN003, ANN202  as asyncio's
        transport, protocol = await super().create_connection(*args, **kwargs)
        self.opened.add(transport)
        return transport, protocol


class _Aside(ThreadPoolExecutor):
    """Looks names up, each in a daemon thread. Python's exit waits for asyncio's own threads, so for a resolver that hangs."""

    def submit(self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()  # from here on a cancel is ignored, and the result may be set

        def call() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as e:  # noqa: BLE001  it belongs to the code that waits
                future.set_exception(e)

        threading.Thread(target=call, daemon=True).start()
        return future
