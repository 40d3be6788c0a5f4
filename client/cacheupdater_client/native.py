"""The machine's own threads and sockets, whatever gevent has put in their place.

The sender is a native thread even where gevent has patched the standard library. A greenlet would run only when the thread
that made it yields, and a native thread of such a process may never yield. The code of the sender takes its threads, locks
and sockets from here. Each name is looked up at each use, for gevent may patch after this module was imported.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST_S = 3600.0  # a lock refuses timeouts above some limit


def original(module: str, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201  whatever it is
    """`module.name` of the unpatched Python."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(importlib.import_module(module), name)


def start_thread(work: Callable[[], None]) -> None:
    """Starts a daemon thread. RuntimeError if there can be no more, or if the interpreter is shutting down."""
    original("_thread", "start_new_thread")(work, ())


def sleep(seconds: float) -> None:
    """Puts this thread alone to sleep."""
    if seconds > 0:
        original("time", "sleep")(seconds)


class Bell:
    """One thread waits; any code may ring, also signal handlers and finalizers: ringing takes no lock that may be held."""

    def __init__(self) -> None:
        self._silence = original("_thread", "allocate_lock")()
        self._silence.acquire()

    def ring(self) -> None:
        """Ends the present wait, or else the next one at once. Several rings before that count as one."""
        with contextlib.suppress(RuntimeError):  # it has been rung already
            self._silence.release()

    def wait(self, seconds: float) -> bool:
        """Whether it was rung within so many seconds."""
        return bool(self._silence.acquire(timeout=min(max(0.0, seconds), _LONGEST_S)))


def this_thread() -> int:
    """The number of this thread."""
    number: int = original("_thread", "get_ident")()
    return number


def no_threads() -> str:
    """Why a new thread would never run; empty if it will.

    uWSGI hands Python's lock to other threads only if an option says so. `uwsgi.opt` shows its options.
    """
    said = getattr(sys.modules.get("uwsgi"), "opt", None)
    if said is None or _is_on(said, "threads") or _is_on(said, "enable-threads"):
        return ""
    return "this uWSGI runs no threads; start it with --enable-threads"


def _is_on(said: Mapping[object, object], name: str) -> bool:
    value = said.get(name, said.get(name.encode()))
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return value is not None and text.lower() not in {"", "0", "false", "no", "off"}
