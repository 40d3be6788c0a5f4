"""The updater as a process: event loop, signals, exit code. Lives from the built service to its drained end.

SIGHUP asks the service to read its budgets again. The first SIGTERM or SIGINT asks it to drain (exit 0). A second one aborts at once: whoever sends it has waited
long enough, and what was not finished is loaded again by the next owner. So does a drain that does not end by itself.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from cacheupdater.cli import early, exits
from cacheupdater.errors import CacheUpdaterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_log = logging.getLogger(__name__)

# new objects between two looks for cycles; the default of 700 is reached several times per unit
GC_OBJECTS = 50_000
# from the first signal to the end, whatever hangs: the service's drain of 10 s, and 5 s to part from everybody
END_S = 15.0
# after the first SIGTERM another one is its echo: systemd tells every process of a service, and so does the parent of
# workers; `timeout` tells its child and then its group. Nobody sends two on purpose so fast.
ECHO_S = 0.5


class Runnable(Protocol):
    """What a service is to its process."""

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Calls `ready` once with where it listens; returns the exit code when `stop` is set and all is drained."""
        ...

    def reload(self) -> None:
        """Takes over what may change while it runs; what comes before `run` is made up for."""
        ...


def serve(service: Runnable) -> int:
    """Runs the service to its end. What it cannot explain is logged, passwords hidden, and ends with 70."""
    gc.freeze()  # what was imported stays: not worth another look
    # rows are tuples by the thousand and make no cycles: a sixth of a refresh was measured
    gc.set_threshold(GC_OBJECTS)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(service))
    except CacheUpdaterError:
        raise
    except Exception:  # noqa: BLE001  the last line of defence: logged with passwords hidden, and an exit code
        _log.exception("stopped by an error that nobody expected")
        return exits.SOFTWARE


async def _serve(service: Runnable) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    _stop_on_signal(loop, stop)
    signal.signal(signal.SIGHUP, lambda *_: _call_soon(loop, service.reload))
    if early.hung_up():
        service.reload()
    return await service.run(_say_ready, stop)


def _call_soon(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and so shall we
        loop.call_soon_threadsafe(what)


def _say_ready(where: str) -> None:
    print(f"ready {where}".rstrip(), flush=True)


def _stop_on_signal(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Plain handlers and not the loop's: the second signal must work even when the loop is stuck."""
    first: list[tuple[int, float]] = []  # number, and when
    stopped: SimpleQueue[None] = SimpleQueue()  # the one of Python's that a signal handler may put into
    threading.Thread(target=_end_at_last, args=[stopped], name="end", daemon=True).start()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if first and number == signal.SIGTERM == first[0][0] and now - first[0][1] < ECHO_S:
            return
        if first:
            os.write(2, b"cacheupdater: aborted by a second signal\n")
            os._exit(exits.SIGNALLED + number)
        first.append((number, now))
        stopped.put(None)
        _call_soon(loop, stop.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def _end_at_last(stopped: SimpleQueue[None]) -> None:
    """In a thread of its own: a user's function may ignore its cancellation, or stop the loop itself."""
    stopped.get()
    time.sleep(END_S)
    _log.error("aborted: something does not end, %g s after the signal to stop", END_S)
    os._exit(exits.SOFTWARE)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed: it makes small reads and writes cheaper. None means asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
