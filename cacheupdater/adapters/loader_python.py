"""Values from a user's own function, named `module:function` in the configuration.

The function gets a list of the keys' captures: plain values if the pattern has one capture (`[7, 8]`), tuples in the
pattern's order if it has several (`[(7, "de"), (8, "fr")]`). It returns a mapping from these to values. A key that it leaves
out does not exist and is deleted. The function may be async or ordinary. The calls of an ordinary function run in threads
that stay alive between calls, for many libraries keep a connection per thread and never close it.

Each namespace has one `PythonLoader`, for the life of the process. Python cannot stop a thread, nor a coroutine that ignores
its cancellation. So a call that hangs keeps its place among `threads`. When no place is left, loads fail as `Unavailable`
until a call returns; other namespaces are not affected.

A function may raise `Unavailable` or `Faulty` itself. For any other exception, errors give the type and the line, but not the
text, which may quote a value.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from queue import SimpleQueue
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater import masking
from cacheupdater.core.words import counted
from cacheupdater.errors import CacheUpdaterError, Faulty, Misconfigured, TimedOut, Unavailable, Unreached
from cacheupdater.ports import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.ports import Leaves
    from cacheupdater_client.protocol.patterns import Capture, Captures, Pattern

    Wanted: TypeAlias = Sequence[Capture] | Sequence[Captures]
    Function: TypeAlias = Callable[[Wanted], object]


class PythonLoader:
    """Calls the function once per load, and checks that its answer keeps the contract."""

    def __init__(
        self,
        target: str,
        pattern: Pattern,
        *,
        deadline: float = 1.0,
        threads: int = 8,
        function: Function | None = None,
    ) -> None:
        """Imports the function, unless it is given. `deadline` is in seconds per call; at most `threads` calls run at once, async ones too."""
        self._target = target
        self._function = function or _imported(target)
        self._single = len(pattern.names) == 1
        self._deadline = deadline
        self._free = asyncio.Semaphore(threads)
        self._threads = _Threads(f"loader {target}")

    async def load(self, keys: Sequence[Captures], leaves: Leaves = at_once) -> Mapping[Captures, object]:
        """As `ports.Loader`, by one call of the function."""
        if not keys:
            return {}
        wanted = [key[0] for key in keys] if self._single else list(keys)
        # the owners are mapped before the call, for the function may sort its list
        return await self._asked(wanted, dict(zip(wanted, keys, strict=True)), leaves)

    async def try_out(self) -> None:
        """Calls the function with an empty list. Only an empty mapping is a correct answer."""
        await self._asked([], {})

    async def _asked(
        self, wanted: Wanted, owners: Mapping[object, Captures], leaves: Leaves = at_once
    ) -> Mapping[Captures, object]:
        try:
            return self._checked(await self._in_time(wanted, _Begun(leaves)), owners)
        except CacheUpdaterError:
            raise
        except Exception as e:  # noqa: BLE001  a user's function may raise anything
            raise _kind(e)(f"{self._target} raised {type(e).__name__} at {_line(e)}") from None

    async def close(self) -> None:
        """Ends the idle threads. Threads that hang end with the process."""
        self._threads.close()

    async def _in_time(self, wanted: Wanted, begun: _Begun) -> object:
        """The function's answer within the deadline. In a task of its own, for a function may ignore its cancellation."""
        call = asyncio.get_running_loop().create_task(self._called(wanted, begun))
        try:
            await asyncio.wait([call], timeout=self._deadline)
        finally:
            if not call.done():
                call.add_done_callback(_forgotten)
                call.cancel()
        if call.cancelled():  # from within: raised here, it would look like a cancellation of our own task
            raise Faulty(f"{self._target} was cancelled by something that it waited for")
        if call.done():
            return call.result()
        what = f"{self._target} gave no answer within {self._deadline:.3g} s"
        raise TimedOut(what) if begun.true else Unreached(f"{what}, as all its threads are busy")

    async def _called(self, wanted: Wanted, begun: _Begun) -> object:
        if inspect.iscoroutinefunction(self._function):
            async with self._free:
                begun.now()
                return await self._function(wanted)
        answer = await self._in_thread(wanted, begun)
        return await answer if inspect.isawaitable(answer) else answer

    async def _in_thread(self, wanted: Wanted, begun: _Begun) -> object:
        await self._free.acquire()
        try:
            begun.now()
        except BaseException:
            self._free.release()
            raise
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Callable[[], object]] = loop.create_future()

        def settle(result: Callable[[], object]) -> None:
            self._threads.idle += 1
            self._free.release()
            if not outcome.done():  # done: the caller has given up
                outcome.set_result(result)

        def work() -> None:
            result = _attempted(self._target, self._function, wanted)
            with contextlib.suppress(RuntimeError):  # the loop has ended before the function did
                loop.call_soon_threadsafe(settle, result)

        try:
            self._threads.give(work)
        except RuntimeError as e:  # the system's limit on threads
            self._free.release()
            raise Unreached(f"{self._target} gets no thread: {e}") from None
        return (await outcome)()

    def _checked(self, answer: object, owners: Mapping[object, Captures]) -> Mapping[Captures, object]:
        if not isinstance(answer, Mapping):
            raise Faulty(
                f"{self._target} returned {type(answer).__name__}; a mapping of keys to values is needed"
            )
        strange = [key for key in answer if key not in owners]
        if strange:
            got, asked = type(strange[0]).__name__, type(next(iter(owners), strange[0])).__name__
            raise Faulty(
                f"{self._target} returned {counted(len(strange), 'key')} that it was not asked for"
                + (f": {got} instead of {asked}" if got != asked else "")
            )
        empty = sum(value is None for value in answer.values())
        if empty:
            raise Faulty(
                f"{self._target} returned None for {counted(empty, 'key')}; leave out what does not exist"
            )
        return {owners[key]: value for key, value in answer.items()}


@dataclass(slots=True)
class _Begun:
    """Whether the function was called. The call counts as the moment at which the statement leaves."""

    leaves: Leaves
    true: bool = False

    def now(self) -> None:
        """The function is about to be called. Raises if it must not be called any more."""
        self.leaves()
        self.true = True


class _Threads:
    """Daemon threads, for an executor's threads would hold up the end of the process. At most as many as calls at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = 0
        self.idle = 0  # the caller of `give` counts it up when the work is done

    def give(self, work: Callable[[], None]) -> None:
        """Hand work to an idle thread, else to a new one. Raises RuntimeError if the system has no thread left."""
        if self.idle:
            self.idle -= 1
        else:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._started += 1
        self._work.put(work)

    def close(self) -> None:
        """Each thread ends after its present work."""
        for _ in range(self._started):
            self._work.put(None)
        self._started = self.idle = 0

    def _run(self) -> None:
        while work := self._work.get():
            work()


def _imported(target: str) -> Function:
    module, _, name = target.partition(":")
    if not module or not name:
        raise Misconfigured(
            f"{target!r} names no function; write module:function, such as shop.loaders:products"
        )
    try:
        found: object = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as e:
        raise Misconfigured(f"cannot import {target!r}: {type(e).__name__}: {masking.foreign(str(e))}") from e
    if not callable(found):
        raise Misconfigured(f"{target!r} is of type {type(found).__name__}, not a function")
    return found


def _attempted(target: str, function: Function, wanted: Wanted) -> Callable[[], object]:
    """Calls the function in this thread. Returns a function that returns or raises its result in another."""
    try:
        answer = function(wanted)
    except BaseException as e:  # noqa: BLE001  SystemExit in a user's function must not end a thread silently
        error = e if isinstance(e, Exception) else Faulty(f"{target} ended its thread by {type(e).__name__}")

        def again() -> object:
            raise error

        return again
    return lambda: answer


def _kind(error: Exception) -> type[Unavailable | Faulty]:
    """The error class that says what the caller can do about an error of the function."""
    if isinstance(error, TimeoutError):
        return TimedOut
    return Unavailable if isinstance(error, ConnectionError) else Faulty


def _forgotten(call: asyncio.Task[object]) -> None:
    """Reads the error of a call that is not awaited any more: asyncio would complain about an unread one."""
    if not call.cancelled():
        call.exception()


def _line(error: Exception) -> str:
    """The file and line at which the error was raised."""
    frames = extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown line"
