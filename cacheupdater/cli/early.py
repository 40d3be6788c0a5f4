"""Signals to a process that is still importing: it has taken no hints yet, so a stop ends it at once.

An updater and a collector end with exit code 0. A drain of a queue has not begun, and its exit code says so.
`run` and `collect` enter `signals` before they import anything heavy; `serve` takes over once there is a loop. Without
`signals`, SIGHUP would kill a process that has just begun. SIGTERM would be lost in a process with PID 1, for the kernel does
not deliver signals without a handler to PID 1.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_hung_up: list[int] = []  # one per process: a signal handler gets no other place to write to


@contextmanager
def signals(*, stopped: int = exits.OK) -> Iterator[None]:
    """Handles the signals within the block. At its end the former handlers are back. `stopped` is the exit code of a stop."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, lambda *_: os._exit(stopped))
    signal.signal(signal.SIGHUP, _note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _hung_up.clear()


def hung_up() -> bool:
    """Whether a SIGHUP has come within `signals`. The configuration may have been read before it."""
    return bool(_hung_up)


def _note(number: int, _frame: FrameType | None) -> None:
    _hung_up.append(number)
