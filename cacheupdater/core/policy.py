"""Which touches are worth a load, and how long a key then holds its seat.

The engine asks a policy and knows none by name. `Fixed` holds for the namespace's `every` and loads whatever is
touched after it; the seam is shaped for one that learns: it is told every touch, every outcome, and the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.namespace import Namespace


class Policy(Protocol):
    """Batch-shaped: called once per pack, unit and step."""

    learns: bool
    """Whether `on_loaded` wants to be told: it costs a look at every answer."""

    def hold(self, namespace: Namespace) -> float:
        """Seconds from a head's start for which touches of its key are declined."""
        ...

    def on_hints(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> Sequence[bytes]:
        """Of these touched keys, those that are worth a load now. Misses and changes are not asked about."""
        ...

    def on_loaded(self, keys: Sequence[bytes], changed: Sequence[bool], now: float) -> None:
        """These keys were refreshed; `changed` says whether the write found other bytes than before."""
        ...

    def tick(self, now: float) -> Sequence[bytes]:
        """Keys worth a load although nobody has just read them."""
        ...


class Fixed:
    """Every touch after the hold is worth a load: a least interval per key."""

    learns = False

    def hold(self, namespace: Namespace) -> float:
        return namespace.every

    def on_hints(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> Sequence[bytes]:  # noqa: ARG002  the seam's signature
        return keys

    def on_loaded(self, keys: Sequence[bytes], changed: Sequence[bool], now: float) -> None:
        """Nothing to learn."""

    def tick(self, now: float) -> Sequence[bytes]:  # noqa: ARG002  the seam's signature
        return ()
