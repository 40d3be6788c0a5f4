"""A reader of stdout that goes away, as `head` does, is no error: the command ends quietly.

`main` runs each command within `kept`. Python ignores SIGPIPE, so a write to a pipe without a reader raises BrokenPipeError.
A connection may raise it too. So `kept` asks the system about stdout, and any other broken pipe stays an error.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from cacheupdater.cli import exits

if TYPE_CHECKING:
    from collections.abc import Callable


def kept(command: Callable[[], int]) -> int:
    """The command's exit code, or that of SIGPIPE, which a shell knows from other commands."""
    try:
        code = command()
        if sys.stdout is not None:  # it is None if the process was started without one
            sys.stdout.flush()  # here, for what fails while Python ends is printed as an error
    except BrokenPipeError:
        if not _gone():
            raise
        return _silent()
    return code


def _gone() -> bool:
    """Whether nobody reads stdout any more."""
    import select

    with suppress(AttributeError, OSError, ValueError):  # there is no stdout, or it is no file
        asked = select.poll()
        asked.register(sys.stdout.fileno(), 0)  # what is asked here is always told: an error, or a hang-up
        return bool(asked.poll(0))
    return False


def _silent() -> int:
    """Sends what is still to be written nowhere, for Python writes it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return exits.SIGNALLED + signal.SIGPIPE
