"""Which touches are worth a load, and how long a key then holds its seat.

The engine asks a policy and knows none by name. `Fixed` holds a key for the namespace's `every`, and loads it at any touch
after that. The other policy, `price`, learns. So the engine reports to a policy every hint, every outcome, and the time.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cacheupdater.core.hints import Kind
    from cacheupdater.core.namespace import Namespace


class Loaded(NamedTuple):
    """Keys of one namespace that were refreshed together, for one kind of hint."""

    kind: Kind
    keys: Sequence[bytes]
    changed: Sequence[bool | None]  # whether the write found other bytes; None: that proves nothing
    began: float  # when their heads began to run: the values are at least as new
    stamps: Sequence[float | None]  # what their rows say about their last change; empty: nothing
    absent: Collection[bytes] = ()  # those that have no row: no reader finds a value of them


class Policy(Protocol):
    """All methods take batches: the engine calls them once per pack, unit or step."""

    learns: bool
    """Whether `on_loaded`, `on_misses` and `on_changes` must be called: they cost a look at every key."""

    met: int
    """How many keys were new to the policy so far: each costs as much as another hint."""

    def hold(self, namespace: Namespace) -> float:
        """Seconds from a head's start for which touches of its key are declined."""
        ...

    def on_hints(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> Sequence[bytes]:
        """Of these touched keys, those that are worth a load now."""
        ...

    def on_fills(self, keys: Sequence[bytes], began: Sequence[float], now: float) -> None:
        """Readers have loaded these keys themselves, each at its time. They are reported as touched too. Called for priced
        namespaces only."""
        ...

    def on_misses(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> None:
        """These keys were missed. They are loaded whatever the policy thinks."""
        ...

    def read_rates(self, keys: Sequence[bytes], now: float) -> Sequence[float]:
        """How many reads per second of each key are known of; empty if nothing is known. Asked while many misses wait."""
        ...

    def on_changes(self, keys: Sequence[bytes], now: float) -> Collection[bytes]:
        """These keys have changed. They are due whatever the policy thinks; the returned ones can wait for a quiet moment."""
        ...

    def on_loaded(self, loaded: Loaded, now: float) -> None:
        """These keys were refreshed."""
        ...

    def on_spared(self, keys: Sequence[bytes]) -> None:
        """Changes of these keys were dropped, and their values stay: no load comes for them, and no miss."""
        ...

    def tick(self, now: float) -> Sequence[bytes]:
        """Keys worth a load although nobody has just read them."""
        ...

    def wake(self) -> float:
        """When `tick` must be called again."""
        ...

    def pause(self, namespaces: Collection[Namespace], now: float) -> None:
        """These namespaces are paused from now on, and no others: `tick` returns none of their keys, and no read is heard."""
        ...

    def leave(self) -> None:
        """The partition goes to another owner."""
        ...


class Fixed:
    """Every touch after the hold is worth a load: a least interval per key."""

    learns = False
    met = 0

    def hold(self, namespace: Namespace) -> float:
        return namespace.every

    def on_hints(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> Sequence[bytes]:  # noqa: ARG002  the seam's signature
        return keys

    def on_fills(self, keys: Sequence[bytes], began: Sequence[float], now: float) -> None:
        """Nothing to learn."""

    def on_misses(self, keys: Sequence[bytes], counts: Sequence[int], now: float) -> None:
        """Nothing to learn."""

    def read_rates(self, keys: Sequence[bytes], now: float) -> Sequence[float]:  # noqa: ARG002  the seam's signature
        return ()

    def on_changes(self, keys: Sequence[bytes], now: float) -> Collection[bytes]:  # noqa: ARG002  the seam's signature
        return ()

    def on_loaded(self, loaded: Loaded, now: float) -> None:
        """Nothing to learn."""

    def on_spared(self, keys: Sequence[bytes]) -> None:
        """Nothing to learn."""

    def tick(self, now: float) -> Sequence[bytes]:  # noqa: ARG002  the seam's signature
        return ()

    def wake(self) -> float:
        return inf

    def pause(self, namespaces: Collection[Namespace], now: float) -> None:
        """Nothing asks by itself."""

    def leave(self) -> None:
        """Nothing was kept."""
