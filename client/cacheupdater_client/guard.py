"""The one guard around all that observes: a fault of ours is counted here, and the application is none the wiser.

`redis-py answered` and `the hint is left` are two things, and the second may fail for reasons that nobody foresees: a key
of a foreign class, a user's pipeline with ways of its own, memory. Whoever observes catches `Exception` around all that
it does and calls `fault`. The count is this process' and stands in `stats()`; a forked child begins with none.
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
    """To be called in an `except`: the fault is counted, and told to whoever listens at debug."""
    faults.count += 1  # no call amid the addition: CPython changes threads at calls and jumps only
    with contextlib.suppress(Exception):  # the application's own handlers and filters run here
        log.debug("cannot observe a command; its hints are lost", exc_info=True)  # noqa: LOG014  called from an `except`
