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

    from cacheupdater.ports import Value

_TOKENS_PER_SECOND = 1e9  # microseconds, and three digits that break ties


def commands(keys: Sequence[bytes], *, values: bool) -> list[tuple[Any, ...]]:
    """TIME first, then two or four for each key: commands for which the writer has the rights anyway."""
    asked: list[tuple[Any, ...]] = [("TIME",)]
    for key in keys:
        asked += [("TYPE", key), ("GET", fence.floor_name(key))]
        if values:  # one of them is an error, for the type is not known before
            asked += [("GET", key), ("HGETALL", key)]
    return asked


def read(replies: Sequence[Any], *, values: bool) -> list[Found | None]:
    """One for each key."""
    time, *said = replies
    now = fence.token_of(int(time[0]), int(time[1])) if isinstance(time, list) else None
    step = 4 if values else 2
    return [_found(said[at : at + step], now) for at in range(0, len(said), step)]


def _found(said: Sequence[Any], now: int | None) -> Found | None:
    here, floor, *held = said
    if not isinstance(here, bytes):
        return None
    value = _value(here, held)
    if here == b"none" or now is None or not isinstance(floor, bytes) or not floor.isdigit():
        return Found(here != b"none", None, value=value)
    age = max(0.0, (now - int(floor)) / _TOKENS_PER_SECOND)
    return Found(here=True, age=age, wrote=fence.form_of(int(floor)), value=value)


def _value(kind: bytes, held: Sequence[Any]) -> Value:
    """A value may have changed its type between two commands: then it is of no type that we know."""
    if not held:
        return None
    string, fields = held
    if kind == b"string":
        return string if isinstance(string, bytes) else None
    return (
        dict(zip(fields[::2], fields[1::2], strict=True))
        if kind == b"hash" and isinstance(fields, list)
        else None
    )
