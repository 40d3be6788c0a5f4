"""Prints uncaught exceptions to stderr as the log prints them: a traceback without users and passwords.

`main` calls `heard` once per process. This changes only the text that Python prints. The exit code is the same, and the same
thread ends.
"""

from __future__ import annotations

import sys
import threading
import traceback
from typing import TYPE_CHECKING

from cacheupdater import masking

if TYPE_CHECKING:
    from types import TracebackType


def heard() -> None:
    """Print uncaught exceptions this way from now on."""
    sys.excepthook = _say
    threading.excepthook = _of_thread


def _say(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    sys.stderr.write(masking.trace("".join(traceback.format_exception(kind, error, trace))))


def _of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        _say(args.exc_type, args.exc_value, args.exc_traceback)
