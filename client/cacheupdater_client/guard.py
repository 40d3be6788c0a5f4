"""The one guard around the code that observes commands: a fault of ours is counted here and never reaches the application.

A command may succeed and its hint still fail, for reasons that nobody foresees: a key of a foreign class, an unusual
pipeline of the user's, memory. So the code that observes catches `Exception` around all its work and calls `fault`. Each
process has its own count, which `stats()` shows; a forked child begins at 0.
"""

from __future__ import annotations

import contextlib
import logging

log = logging.getLogger("cacheupdater_client")


class Faults:
    """How often something could not be observed."""

    count = 0


faults = Faults()


def fault() -> None:
    """Called in an `except`: counts the fault and logs it at debug."""
    faults.count += 1  # no call within the addition: CPython changes threads at calls and jumps only
    with contextlib.suppress(Exception):  # the application's own handlers and filters run here
        log.debug("cannot observe a command; its hints are lost", exc_info=True)  # noqa: LOG014  called from an `except`
