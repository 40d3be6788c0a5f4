"""Numbers in sentences for people: one key, two keys."""

from __future__ import annotations


def counted(number: float, one: str, many: str = "") -> str:
    """1 key, 2 keys, 0 keys; `many` where it is not `one` with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"
