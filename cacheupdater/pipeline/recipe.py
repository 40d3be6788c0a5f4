"""How the keys of one namespace become values in Redis: which loader, which bytes, for how long.

Built once per namespace by the service; `load` and `write` follow it. It holds no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cacheupdater.ports import Loader, Writer


@dataclass(frozen=True, slots=True)
class Recipe:
    """`encode` raises Faulty for a value that it cannot express; that fails one key and no other."""

    loader: Loader
    writer: Writer
    encode: Callable[[object], bytes | Mapping[bytes, bytes]]
    ttl: float  # seconds: bounds the age of what is read, for a refresh renews it
    jitter: float = (
        0.1  # share of the ttl by which a value may live shorter, so that a batch does not expire at once
    )

    def ttl_ms(self, lot: float) -> int:
        """The ttl of one value; `lot` is drawn between 0 and 1."""
        return max(1, int(self.ttl * 1000.0 * (1.0 - self.jitter * lot)))
