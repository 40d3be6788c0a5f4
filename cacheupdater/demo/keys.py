"""Reads the keys `+` and `-` from the terminal, one at a time and without Enter.

`main` enters it for the time of the run; the conductor calls `pressed` between two looks at the readers. Without a terminal,
or as a job in the background, it reads nothing and changes nothing.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import Self

_AT_ONCE = 64  # bytes: a cat on the keyboard


class Stream(Protocol):
    """The part of standard input that is needed."""

    def fileno(self) -> int: ...
    def isatty(self) -> bool: ...


class Keys:
    """Restores the terminal's settings at the end, however the run ends. Ctrl-C works meanwhile."""

    def __init__(self, stream: Stream | None = sys.stdin) -> None:
        self._stream = stream
        self._terminal: int | None = None

    def __enter__(self) -> Self:
        if self._stream is not None and self._stream.isatty():
            number = self._stream.fileno()
            if _ours(number):
                self._before = termios.tcgetattr(number)
                self._terminal = number
                tty.setcbreak(number)  # and not raw: Ctrl-C stays a signal
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)
            self._terminal = None

    @property
    def heard(self) -> bool:
        """Whether there is a terminal on which keys can be pressed."""
        return self._terminal is not None

    def pressed(self) -> str:
        """The keys typed since the last call. Never waits."""
        if self._terminal is None or not select.select([self._terminal], [], [], 0)[0]:
            return ""
        return os.read(self._terminal, _AT_ONCE).decode("ascii", "replace")


def _ours(terminal: int) -> bool:
    """Whether we are in its foreground. It would stop us if we read from the background."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # the terminal of another session
        return False
