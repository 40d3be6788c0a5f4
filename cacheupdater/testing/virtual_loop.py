"""An event loop whose time is virtual: an hour of waiting passes in a moment, and equally each time.

For tests of anything that waits, and for the simulation of the whole service. `run` is all that a test needs; every
clock reading must be `loop.time()`. When nothing is ready, the loop does not wait for its next timer but sets its
clock to it. A program that waits for nothing is a `Deadlock`, one that spins without time passing a `Livelock`: both
end the run with the tasks that are to blame. Threads, sockets and subprocesses would bring real time back in and raise.

It knows no seed: callbacks run in the order that asyncio promises, so equal programs make equal runs. Whoever wants
other orders draws the latencies of its fakes by lot.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context
    from typing import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

T = TypeVar("T")

TURNS_MAX = 100_000  # turns of the loop at one moment of virtual time; a busy simulation needs some hundred
_BLAMED = 10  # tasks that an error message names


class Deadlock(RuntimeError):
    """Nothing is ready and nothing is scheduled: whoever still waits would wait for ever."""


class Livelock(RuntimeError):
    """The loop turns and turns, and its time stands still."""


class Unreal(RuntimeError):
    """Something asked for a thread, a socket or a process, whose time nobody can simulate."""


class _Clock:
    """What asyncio takes for its selector: it waits for no file, it only moves the time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.now = 0.0
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> list[NoReturn]:
        if timeout is None:
            raise Deadlock(f"everybody waits and nothing is scheduled at {self.now:g} s: {self._waiting()}")
        if timeout > 0.0:
            self.now += timeout
            self._turns = 0
            return []
        self._turns += 1
        if self._turns > TURNS_MAX:
            self._turns = 0  # what is cancelled now may still run its last steps
            raise Livelock(f"{TURNS_MAX} turns of the loop at {self.now:g} s: {self._waiting()}")
        return []

    def close(self) -> None:
        """Nothing is open."""

    def _waiting(self) -> str:
        tasks = sorted(str(task.get_coro()) for task in asyncio.all_tasks(self._loop))
        return "; ".join(tasks[:_BLAMED]) or "no task is left"


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop over a clock of ours. Begins at 0 s."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = self._selector = _Clock(self)
        self._clock_resolution = 1e-9  # timers so close together are due together

    def time(self) -> float:
        return self._clock.now

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """For our own thread only: asyncio itself uses it to close forgotten generators."""
        if getattr(self, "_thread_id", None) not in {None, threading.get_ident()}:
            raise Unreal("another thread called into a virtual-time loop")
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, events: list[NoReturn]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who could be woken."""


def _refusal(wanted: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise Unreal(f"{wanted} was wanted, whose time nobody can simulate")

    return refuse


for _name, _wanted in {
    "run_in_executor": "a thread",
    "create_connection": "a connection",
    "create_server": "a server",
    "create_unix_connection": "a connection",
    "create_unix_server": "a server",
    "create_datagram_endpoint": "a socket",
    "getaddrinfo": "a name service",
    "add_reader": "a file",
    "add_writer": "a file",
    "subprocess_exec": "a process",
    "subprocess_shell": "a process",
}.items():
    setattr(VirtualLoop, _name, _refusal(_wanted))


def run(main: Coroutine[object, object, T]) -> T:
    """As `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
