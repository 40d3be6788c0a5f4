"""Quantities as people write them: `100ms`, `1h30m`, `500/s`, `300ms/s`, `10%`.

The models call these functions to type a value. Each takes the text of the file, and raises ValueError with a message
that names the forms. A bare number is refused: nobody should have to look up whether `30` means seconds or milliseconds.
Durations become seconds, rates become rows per second, percentages shares of one. Only a count (`whole`) and a factor are
plain numbers.
"""

from __future__ import annotations

import re

from cacheupdater import masking
from cacheupdater_client.protocol import durations
from cacheupdater_client.protocol.durations import NUMBER, in_seconds

_RATE = re.compile(rf"({NUMBER})/([smh])")
_DATABASE_TIME = re.compile(rf"({NUMBER})(ms|s)/s")
_PERCENT = re.compile(rf"({NUMBER})%")
_FACTOR = re.compile(rf"({NUMBER})")
_WHOLE = re.compile(r"[0-9]{1,12}")

_SHOWN_MAX = 40  # characters of a wrong value in a message


def duration(value: object) -> float:
    """Seconds."""
    text = _text(value, durations.FORM)
    seconds = durations.parsed(text)
    if seconds is None:
        raise ValueError(_refusal(text, durations.FORM))
    return seconds


def rate(value: object) -> float:
    """Rows per second."""
    match = _matched(value, _RATE, "a rate in rows such as 500/s, 50/m or 1000/h")
    return float(match[1]) / in_seconds(1, match[2])


def database_time(value: object) -> float:
    """Seconds of a database's time per second."""
    match = _matched(value, _DATABASE_TIME, "database time per second such as 300ms/s or 2s/s")
    return in_seconds(float(match[1]), match[2])


def percent(value: object) -> float:
    """A share of one."""
    return float(_matched(value, _PERCENT, "a percentage such as 10%")[1]) / 100


def factor(value: object) -> float:
    """How many times as much; a pure number."""
    return float(_matched(value, _FACTOR, "a factor, a plain number such as 10 or 0.5")[1])


def whole(value: object) -> int:
    """A count; a whole number needs no unit."""
    text = _text(value, "a whole number")
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a whole number")
    return int(text)


def shown(text: str) -> str:
    """A value of the file inside a message: quoted, without passwords, escaped, not too long."""
    safe = masking.value(text)  # before it is cut: half a URL does not look like one
    short = safe if len(safe) <= _SHOWN_MAX else safe[:_SHOWN_MAX] + "…"
    return f'"{printable(short)}"'


def printable(text: str) -> str:
    """Safe for a terminal and for one line: whatever is not printable is escaped."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def _matched(value: object, pattern: re.Pattern[str], form: str) -> re.Match[str]:
    text = _text(value, form)
    match = pattern.fullmatch(text)
    if match is None or not text:
        raise ValueError(_refusal(text, form))
    return match


def _text(value: object, form: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be {form}")  # noqa: TRY004  pydantic collects ValueError, a TypeError would pass through it
    return value.strip()


def _refusal(text: str, form: str) -> str:
    if re.fullmatch(NUMBER, text):
        return f"{shown(text)} has no unit; write {form}"
    return f"{shown(text)} is not {form}"
