"""The updater as a process: event loop, signals, exit code. `serve` runs a service from its start to its drained end.

SIGHUP makes the service read its configuration again. The first SIGTERM or SIGINT makes it drain, and the service names the exit code. A second one aborts the
process at once: its sender has waited long enough, and the next owner loads again whatever was not finished. A drain that
does not end in time is aborted too.
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

# new objects between two searches for cycles; the default of 700 is reached several times per unit
GC_OBJECTS = 50_000
# seconds from the first signal to the end, even if something hangs: the service's drain of 10 s, and 5 s to close
# all connections
END_S = 15.0
# Seconds after the first SIGTERM in which another one is its echo: systemd signals every process of a service, and so
# does the parent of workers; `timeout` signals its child and then its group. Nobody sends two on purpose so fast.
ECHO_S = 0.5


class Runnable(Protocol):
    """A service, as its process sees it."""

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Calls `ready` once, with the addresses. Returns the exit code after `stop` is set and everything is drained."""
        ...

    def reload(self) -> None:
        """Takes over the settings that may change while it runs. A call before `run` takes effect in `run`."""
        ...


def serve(service: Runnable) -> int:
    """Runs the service to its end. An unexpected error is logged, with passwords hidden, and gives exit code 70."""
    gc.freeze()  # imported objects stay: no collection needs to visit them
    # rows are thousands of tuples without cycles: collections were measured to take a sixth of a refresh
    gc.set_threshold(GC_OBJECTS)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(service))
    except CacheUpdaterError:
        raise
    except Exception:  # noqa: BLE001  the last line of defence: logged with passwords hidden, and an exit code
        _log.exception("stopped by an unexpected error")
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
    with suppress(RuntimeError):  # the loop has ended, and the process is about to end
        loop.call_soon_threadsafe(what)


def _say_ready(where: str) -> None:
    print(f"ready {where}".rstrip(), flush=True)


def _stop_on_signal(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Sets plain handlers, not the loop's: the second signal must work even when the loop is stuck."""
    first: list[tuple[int, float]] = []  # number and time of the first signal
    stopped: SimpleQueue[None] = (
        SimpleQueue()
    )  # the only queue of Python's that a signal handler may put into
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
    """Aborts a process that does not end. In a thread of its own, for a user's function may block the loop."""
    stopped.get()
    time.sleep(END_S)
    _log.error("aborted: the updater has not ended %g s after the signal to stop", END_S)
    os._exit(exits.SOFTWARE)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop, if uvloop is installed: it makes small reads and writes cheaper. None means asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
