"""Durations as people write them: `100ms`, `2s`, `1h30m`. The configuration file and a declared value of a cache share them."""

from __future__ import annotations

import re

NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"  # plain ASCII: no sign, no exponent, nothing that could overflow
FORM = "a duration such as 100ms, 2s, 5m or 1h30m"

_DURATION = re.compile(rf"(?:({NUMBER})d)?(?:({NUMBER})h)?(?:({NUMBER})m)?(?:({NUMBER})s)?(?:({NUMBER})ms)?")
_UNITS = ("d", "h", "m", "s", "ms")
_PER_SECOND = {"ms": 1000, "s": 1}
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


def parsed(text: str) -> float | None:
    """Seconds; None if the text is no duration. A bare number is none: it does not say what it counts."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    said = zip(_UNITS, match.groups(), strict=True)
    return sum(in_seconds(float(number), unit) for unit, number in said if number is not None)


def in_seconds(number: float, unit: str) -> float:
    """So many of a unit, in seconds."""
    # dividing keeps 100ms at exactly 0.1
    return number / _PER_SECOND[unit] if unit in _PER_SECOND else number * _SECONDS[unit]
