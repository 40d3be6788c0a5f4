"""Signals to an updater that is still importing: there is nothing to drain yet, so a stop ends it at once, with exit code 0.

`run` enters `signals` before it imports anything heavy; `serve` takes over once there is a loop. Without `signals`, SIGHUP would
kill a process that has just begun. SIGTERM would be lost in a process with PID 1, for the kernel does not deliver signals
without a handler to PID 1.
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
def signals() -> Iterator[None]:
    """Handles the signals within the block. At its end the former handlers are back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, _end)
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


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(exits.OK)


def _note(number: int, _frame: FrameType | None) -> None:
    _hung_up.append(number)
