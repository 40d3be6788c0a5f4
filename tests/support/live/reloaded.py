"""Loaders that say which configuration has called them, and what they note: `by17` belongs to the seventeenth configuration.

The updater under test imports this module and calls `by…`. The test reads the file that LOADER_LOG names with `loads_in`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

TAKES_S = 0.03  # of a load: so long that most reloads find some under way
SLOWLY, SLOWLY_S = "slow", 1.6  # keys that begin like this take longer at first than a hand-over waits

_tried = set()  # slow keys


class Load(NamedTuple):
    """One call of a loader, in seconds of the machine's monotonic clock."""

    began: float
    ended: float
    by: int
    cancelled: bool
    keys: tuple[str, ...]


def __getattr__(name):
    """`by17`, for the updater that looks it up."""
    if not (found := re.fullmatch(r"by([0-9]+)", name)):
        raise AttributeError(name)

    async def load(keys):
        return await _loaded(int(found[1]), keys)

    return load


async def _loaded(number, keys):
    began, outcome = time.monotonic(), "cancelled"
    slow = {key for key in keys if key.startswith(SLOWLY)} - _tried
    _tried.update(slow)
    try:
        await asyncio.sleep(SLOWLY_S if slow else TAKES_S)
        outcome = "done"
    finally:
        _note(f"{began} {time.monotonic()} {number} {outcome} {' '.join(keys)}\n")
    return {key: {"at": began, "by": number} for key in keys}


def _note(line):
    """Also of a load that is cancelled."""
    with Path(os.environ["LOADER_LOG"]).open("a", encoding="utf-8") as log:  # noqa: TID251  how the test tells its child
        log.write(line)


def loads_in(file):
    """All that ended so far, by their beginning."""
    lines = (line.split() for line in file.read_text("utf-8").splitlines())
    return sorted(
        Load(float(began), float(ended), int(by), outcome == "cancelled", tuple(keys))
        for began, ended, by, outcome, *keys in lines
    )
