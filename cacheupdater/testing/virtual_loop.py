"""An event loop whose time is virtual: an hour of waiting passes in a moment, and in the same way each time.

For tests of anything that waits, and for the simulation of the whole service. A test needs only `run`, and must read clocks
by `loop.time()`. When nothing is ready, the loop does not wait for its next timer but sets its clock to it. If all tasks wait
and no timer is set, it raises `Deadlock`; if it spins while no time passes, `Livelock`. Both name the tasks to blame. Threads,
sockets and subprocesses would bring real time back in, so they raise.

The loop has no seed: callbacks run in the order that asyncio promises, so equal programs make equal runs. For other orders, a
test draws the latencies of its fakes at random.
"""

from __future__ import annotations

import asyncio
import threading
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine
    from contextvars import Context
    from typing import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

T = TypeVar("T")

TURNS_MAX = 100_000  # turns of the loop at one moment of virtual time; a busy simulation needs some hundred
_TOGETHER_S = 1e-9  # timers so close together are due together
_BLAMED = 10  # tasks that an error message names


class Deadlock(RuntimeError):
    """Nothing is ready and nothing is scheduled: tasks that still wait would wait for ever."""


class Livelock(RuntimeError):
    """The loop turns again and again while its time stands still."""


class Unreal(RuntimeError):
    """The program asked for a thread, a socket or a process. Their time cannot be simulated."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop with a clock of ours instead of files to wait for. It begins at 0 s.

    Timers are tuples in a heap: tuples compare in C, and timers that are due together run in the order in which they were
    set. Simulations spend a third of their time here.
    """

    _ready: deque[asyncio.Handle]  # asyncio's own, which its stubs do not name
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0  # at this moment
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _run_once(self) -> None:
        """One turn, as in asyncio: callbacks that are ready now run; those that they make ready run in the next turn."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not ready and not self._stopping:
            self._advance()
        self._turns += 1
        if self._turns > TURNS_MAX:
            self._turns = 0  # tasks that are cancelled now may still run their last steps
            raise Livelock(f"{TURNS_MAX} turns of the loop at {self._now:g} s: {self._waiting()}")
        while timers and timers[0][0] <= self._now + _TOGETHER_S:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001  as asyncio does

    def _advance(self) -> None:
        if not self._timers:
            raise Deadlock(f"all tasks wait and nothing is scheduled at {self._now:g} s: {self._waiting()}")
        due = self._timers[0][0]
        if due > self._now:
            self._now, self._turns = due, 0

    def _waiting(self) -> str:
        tasks = sorted(str(task.get_coro()) for task in asyncio.all_tasks(self))
        return "; ".join(tasks[:_BLAMED]) or "no task is left"

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """For our own thread only: asyncio itself calls it to close forgotten generators."""
        if getattr(self, "_thread_id", None) not in {None, threading.get_ident()}:
            raise Unreal("another thread called into a virtual-time loop")
        return self.call_soon(callback, *args, context=context)

    def _write_to_self(self) -> None:
        """Does nothing: the loop never sleeps, so it need not be woken."""


def _refusal(wanted: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise Unreal(f"the program asked for {wanted}, whose time cannot be simulated")

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
