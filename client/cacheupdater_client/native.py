"""The machine's own threads and sockets, whatever gevent has put in their place.

The sender is a thread of the machine also where gevent has patched the standard library: a greenlet would run only when
the thread that made it gives way, and a native thread of such a process may never do so. What the sender itself uses
comes from here; nobody else needs it. Looked up at each use, for gevent may patch after this was imported.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST_S = 3600.0  # a lock takes no timeout of any length


def original(module: str, name: str):  # type: ignore[no-untyped-def]  # noqa: ANN201  whatever it is
    """`module.name` as Python brought it."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original(module, name)
    return getattr(importlib.import_module(module), name)


def start_thread(work: Callable[[], None]) -> None:
    """A daemon thread. RuntimeError: there can be no more, or the interpreter is shutting down."""
    original("_thread", "start_new_thread")(work, ())


def sleep(seconds: float) -> None:
    """Of this thread alone."""
    if seconds > 0:
        original("time", "sleep")(seconds)


class Bell:
    """One waits, any may ring: from signal handlers and finalizers too, for ringing takes no lock that may be held."""

    def __init__(self) -> None:
        self._silence = original("_thread", "allocate_lock")()
        self._silence.acquire()

    def ring(self) -> None:
        """Whoever waits goes on, or will not wait the next time. Several rings before that are one."""
        with contextlib.suppress(RuntimeError):  # it has been rung already
            self._silence.release()

    def wait(self, seconds: float) -> bool:
        """Whether it was rung within so many seconds."""
        return bool(self._silence.acquire(timeout=min(max(0.0, seconds), _LONGEST_S)))


def this_thread() -> int:
    """Its number."""
    number: int = original("_thread", "get_ident")()
    return number


def no_threads() -> str:
    """Why a thread that is started would never run; empty where it will.

    uWSGI hands Python's lock to no other thread unless it is told to, and says what it was told in `uwsgi.opt`.
    """
    said = getattr(sys.modules.get("uwsgi"), "opt", None)
    if said is None or _is_on(said, "threads") or _is_on(said, "enable-threads"):
        return ""
    return "this uWSGI runs no threads; start it with --enable-threads"


def _is_on(said: Mapping[object, object], name: str) -> bool:
    value = said.get(name, said.get(name.encode()))
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return value is not None and text.lower() not in {"", "0", "false", "no", "off"}
