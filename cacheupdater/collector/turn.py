"""What the forwarder hands on in each turn: the moment of the turn, and a thread beside the loop for what may block.

`forwarder` makes both for `spill` and `replay`. Only types; nothing here works or remembers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

Aside: TypeAlias = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Runs work in a thread beside the loop, and gives its answer."""


class Moment(NamedTuple):
    """A turn of the forwarder."""

    now: float  # s, of the loop
    now_ms: int  # of the wall clock
    drains: bool  # hints of all kinds leave in this turn
