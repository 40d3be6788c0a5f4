"""A Python loader that can be hurt: the file that HURT names says in what trouble it is, and the version of all rows.

In the file that LOADER_LOG names it notes when each call begins, answers and ends, and for how many rows.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

LATE_S = 2.0
LOOK_S = 0.02

_LOG = Path(os.environ.get("LOADER_LOG", "/dev/null"))  # noqa: TID251  how the test tells its child
_HURT = Path(os.environ.get("HURT", "/dev/null"))  # noqa: TID251  as above


def _said():
    trouble, _, version = _HURT.read_text("utf-8").partition(" ")
    return trouble, int(version)


def _note(what, numbers):
    with _LOG.open("a", encoding="utf-8") as log:
        log.write(f"{what} {time.monotonic()} {len(numbers)}\n")


async def rows(numbers):
    """All numbers have a row."""
    if not numbers:
        return {}
    _note("begins", numbers)
    try:
        trouble, _ = _said()
        if trouble == "refused":
            raise ConnectionRefusedError("nobody listens")
        if trouble == "reset":
            raise ConnectionResetError("cut")
        if trouble == "slow":
            await asyncio.sleep(LATE_S)
        while _said()[0] == "hanging":  # noqa: ASYNC110  another process says so
            await asyncio.sleep(LOOK_S)
        _note("answers", numbers)
        return {number: {"id": number, "version": _said()[1]} for number in numbers}
    finally:
        _note("ends", numbers)
