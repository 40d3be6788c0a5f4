"""Signals to an updater that is still importing: nothing is drained yet, so a stop ends it at once, with 0.

`run` enters `signals` before it imports anything heavy; `serve` takes over once there is a loop. Without it SIGHUP would
kill a process that has just begun, and SIGTERM would be lost as PID 1, which the kernel spares signals without a handler.
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

_hung_up: list[int] = []  # one process, one list: a handler has nobody to ask where to write


@contextmanager
def signals() -> Iterator[None]:
    """While it lasts; afterwards they are what they were."""
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
    """Whether a SIGHUP came since; the configuration may have been read before that."""
    return bool(_hung_up)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(exits.OK)


def _note(number: int, _frame: FrameType | None) -> None:
    _hung_up.append(number)
