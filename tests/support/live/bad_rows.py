"""A Python loader with rows that cannot be read while the file exists that BAD_ROWS names, and slow ones while SLOW_ROWS exists.

It notes in the file that LOADER_LOG names how many healthy rows each call has given, and when.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_LOG = Path(os.environ.get("LOADER_LOG", "/dev/null"))  # noqa: TID251  how the test tells its child
_BAD = Path(os.environ.get("BAD_ROWS", "/nonexistent"))  # noqa: TID251  as above

_SLOW = Path(os.environ.get("SLOW_ROWS", "/nonexistent"))  # noqa: TID251  as above

EVERY, POISON, SLOW = 100, 13, 57  # one row in so many is poison, and one is slow: which ones
SLOWER = 0.6  # seconds of a call with a slow row: with one in each call, ten calls a second need six connections of five


def is_healthy(number):
    return number % EVERY != POISON


def is_slow(number):
    return number % EVERY == SLOW


def rows(numbers):
    """A poisoned row spoils its whole call, and a slow one makes it slow."""
    if any(map(is_slow, numbers)) and _SLOW.exists():
        time.sleep(SLOWER)
    torn = [number for number in numbers if not is_healthy(number)]
    if torn and _BAD.exists():
        raise ValueError(f"row {torn[0]} is torn")
    with _LOG.open("a", encoding="utf-8") as log:
        log.write(f"{time.monotonic()} {len(numbers) - len(torn)}\n")
    return {number: f"row {number}" for number in numbers}
