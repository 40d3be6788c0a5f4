"""What readers of some keys find: the commands of one exchange, and how their replies are read.

Both writers send them, each to the servers that have the keys. A reply that is an error (a right is missing, a slot has
moved) means that it is not known; nobody is blamed, for nothing but a figure depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cacheupdater.ports import Found
from cacheupdater_client import fence

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOKENS_PER_SECOND = 1e9  # microseconds, and three digits that break ties


def commands(keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """TIME first, then two for each key: commands for which the writer has the rights anyway."""
    asked: list[tuple[Any, ...]] = [("TIME",)]
    for key in keys:
        asked += [("TYPE", key), ("GET", fence.floor_name(key))]
    return asked


def read(replies: Sequence[Any]) -> list[Found | None]:
    """One for each key."""
    time, *said = replies
    now = fence.token_of(int(time[0]), int(time[1])) if isinstance(time, list) else None
    return [_found(here, floor, now) for here, floor in zip(said[::2], said[1::2], strict=True)]


def _found(here: Any, floor: Any, now: int | None) -> Found | None:
    if not isinstance(here, bytes):
        return None
    if here == b"none" or now is None or not isinstance(floor, bytes) or not floor.isdigit():
        return Found(here != b"none", None)
    return Found(here=True, age=max(0.0, (now - int(floor)) / _TOKENS_PER_SECOND))
