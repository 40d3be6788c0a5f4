"""What the cache raises besides the errors of redis-py and of loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater_client.cache.places import place_of
from cacheupdater_client.protocol.errors import Misdeclared as Misdeclared  # noqa: PLC0414  it is raised here too

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LoadTimeout(TimeoutError):
    """A value was not loaded within its `timeout`. The cause is the loader, or the process that held the lease."""


class NotFilled(TimeoutError):
    """No updater has filled `keys` within the cache's `wait`."""

    def __init__(self, name: str, keys: Sequence[bytes], wait_s: float) -> None:
        which = "the key" if len(keys) == 1 else f"{len(keys)} keys"
        super().__init__(
            f"{name}: no updater has filled {which} within {wait_s:g} s. Load the row in another way, or try again later. If this"
            " happens often, ask `cacheupdater explain KEY` for the reason, or give the cache a longer `wait`"
        )
        self.keys = list(keys)


def misdeclared(loader: Callable[..., object], why: str) -> Misdeclared:
    """The error for a loader's declaration."""
    place = place_of(loader)
    return Misdeclared(
        f"{f'{place}: ' if place.line else ''}{getattr(loader, '__qualname__', loader)!s}: {why}"
    )
