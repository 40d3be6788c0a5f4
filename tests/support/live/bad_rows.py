"""A Python loader with rows that cannot be read while the file exists that BAD_ROWS names.

It notes in the file that LOADER_LOG names how many healthy rows each call has given, and when.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_LOG = Path(os.environ.get("LOADER_LOG", "/dev/null"))  # noqa: TID251  how the test tells its child
_BAD = Path(os.environ.get("BAD_ROWS", "/nonexistent"))  # noqa: TID251  as above


EVERY, POISON = 100, 13  # one row in so many is poison: which one


def is_healthy(number):
    return number % EVERY != POISON


def rows(numbers):
    """A poisoned row spoils its whole call."""
    torn = [number for number in numbers if not is_healthy(number)]
    if torn and _BAD.exists():
        raise ValueError(f"row {torn[0]} is torn")
    with _LOG.open("a", encoding="utf-8") as log:
        log.write(f"{time.monotonic()} {len(numbers) - len(torn)}\n")
    return {number: f"row {number}" for number in numbers}
