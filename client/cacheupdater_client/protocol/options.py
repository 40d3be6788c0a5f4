"""The options of a queue's URL: which are ours, which are the driver's, and numbers among them.

`streams` and the updater's `depot_url` call these functions. Pure text; no message repeats a value, for it may be a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def split(query: str, ours: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """The options of these names, and all others as they stand. ValueError: one of ours is there twice."""
    said: dict[str, str] = {}
    theirs: list[str] = []
    for each in query.split("&") if query else ():
        name, _, value = each.partition("=")
        if name not in ours:
            theirs.append(each)
        elif name in said:
            raise ValueError(f"has the option {name!r} twice")
        else:
            said[name] = unquote_plus(value)
    return said, theirs


def number(said: Mapping[str, str], name: str, most: int) -> int | None:
    """The number that this option says; None without the option. ValueError: it is none from 1 to `most`."""
    if name not in said:
        return None
    found = int(said[name]) if re.fullmatch("[0-9]{1,8}", said[name]) else 0
    if not 1 <= found <= most:
        raise ValueError(f"has an option {name!r} that is no number from 1 to {most}")
    return found
