"""The keys `+` and `-` of whoever watches, one at a time and without Enter.

Entered by `main` for the time of the show; the conductor asks `pressed` between two looks at the readers. Where
nobody can press anything (no terminal, or a job in the background) nothing is read and nothing is changed.
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
    """As much of standard input as is needed."""

    def fileno(self) -> int: ...
    def isatty(self) -> bool: ...


class Keys:
    """The terminal's settings come back at the end, however that comes about; Ctrl-C works meanwhile."""

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
        """Whether anybody can press anything."""
        return self._terminal is not None

    def pressed(self) -> str:
        """What has been typed since the last call; never waits."""
        if self._terminal is None or not select.select([self._terminal], [], [], 0)[0]:
            return ""
        return os.read(self._terminal, _AT_ONCE).decode("ascii", "replace")


def _ours(terminal: int) -> bool:
    """Whether we stand in its foreground; from the background it would stop us."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # the terminal of another session
        return False
