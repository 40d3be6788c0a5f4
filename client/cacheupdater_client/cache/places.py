"""Where a declaration stands in the application's code: for errors, and for the updater that reads it."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from cacheupdater_client.protocol.definitions import Place

if TYPE_CHECKING:
    from collections.abc import Callable


def place_of(loader: Callable[..., object]) -> Place:
    """The first line of the function, or of its first decorator. Line 0: it is not written in Python."""
    code = getattr(inspect.unwrap(loader), "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code else Place("", 0)


def place_of_caller(depth: int) -> Place:
    """The line that is being run, so many calls above the caller of this function."""
    frame = sys._getframe(depth + 1)  # noqa: SLF001  only the stack says who calls
    return Place(frame.f_code.co_filename, frame.f_lineno)
