"""Log lines on where hints go: one when the first client is made, and one for each further target.

`calls` uses it for each client that is made, in the application's thread; a read never does. The target itself logs later
changes.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from cacheupdater_client import native
from cacheupdater_client.settings import CONVENTIONAL_SOCKET
from cacheupdater_client.shown import shown

if TYPE_CHECKING:
    from cacheupdater_client.settings import Choice

SAID_MAX = 100  # different lines; a process has few targets

log = logging.getLogger("cacheupdater_client")
_said: set[str] = set()


def tell(choice: Choice) -> None:
    """One line for each target: a warning if hints go nowhere and no setting says so, which shows without configured logs."""
    with contextlib.suppress(Exception):  # the application's own handlers and filters run here
        if choice.url is None:
            _say(logging.INFO, f"hints go nowhere: {choice.why}")
        elif choice.awaited and not os.path.exists(CONVENTIONAL_SOCKET):  # noqa: PTH110  Path.exists may raise
            _say(
                logging.WARNING,
                f"hints go nowhere: no updater listens at {CONVENTIONAL_SOCKET} yet, and neither emit nor "
                "CACHEUPDATER_EMIT names another; looking for it every second",
            )
        else:
            _say(logging.INFO, f"hints go to {shown(choice.url)} ({choice.why})")
        if choice.url is not None and (trouble := native.no_threads()):
            _say(logging.WARNING, f"hints leave only at exit: {trouble}")


def _say(level: int, text: str) -> None:
    if text not in _said and len(_said) < SAID_MAX:
        _said.add(text)
        log.log(level, text)
