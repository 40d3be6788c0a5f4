"""What the cache raises besides the errors of redis-py and of loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater_client.cache.places import place_of
from cacheupdater_client.protocol.errors import Misdeclared as Misdeclared  # noqa: PLC0414  it is raised here too

if TYPE_CHECKING:
    from collections.abc import Callable


class LoadTimeout(TimeoutError):
    """A value was not loaded within its `timeout`. The cause is the loader, or the process that held the lease."""


def misdeclared(loader: Callable[..., object], why: str) -> Misdeclared:
    """The error for a loader's declaration."""
    place = place_of(loader)
    return Misdeclared(
        f"{f'{place}: ' if place.line else ''}{getattr(loader, '__qualname__', loader)!s}: {why}"
    )
