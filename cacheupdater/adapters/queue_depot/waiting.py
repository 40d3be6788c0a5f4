"""A limit on the wait for a depot's answer. Each call of the queue to its depot goes through here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from cacheupdater.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def answered(call: Awaitable[T], within: float) -> T:
    """The answer, if it comes `within` these seconds. Otherwise raises Unavailable: nothing is known."""
    try:
        async with asyncio.timeout(within):
            return await call
    except TimeoutError as e:
        raise Unavailable(f"the depot has not answered within {within:.1f} s") from e
