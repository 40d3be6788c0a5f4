"""What nobody has caught, on its way to stderr: a traceback as the log shows one, without users and passwords.

`main` asks once per process. It changes what Python would print and nothing else: not the exit code, not which thread ends.
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
    """From here on."""
    sys.excepthook = _say
    threading.excepthook = _of_thread


def _say(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    sys.stderr.write(masking.trace("".join(traceback.format_exception(kind, error, trace))))


def _of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        _say(args.exc_type, args.exc_value, args.exc_traceback)
