"""How the keys of one namespace become values in Redis: which loader, which bytes, for how long.

Built once per namespace by the service; `load` and `write` follow it. It holds no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.ports import Loader, Writer
    from cacheupdater_client.protocol.fence import Form


@dataclass(frozen=True, slots=True)
class Recipe:
    """`encode` raises Faulty for a value that it cannot express; that fails one key and no other."""

    loader: Loader
    writer: Writer
    encode: Callable[[object], bytes | Mapping[bytes, bytes]]
    ttl: float  # seconds: bounds the age of what is read, for a refresh renews it
    # share of the ttl by which a value may live shorter, so that a batch does not expire at once
    jitter: float = 0.1
    form: Form = "type"  # how the fence recognises what is ours
    replace: bool = False  # whether what is foreign gives way

    def ttls_ms(self, keys: int, lot: float) -> Sequence[int]:
        """The ttls of values that are written together, evenly spread; `lot`, drawn between 0 and 1, shifts them."""
        longest = max(1, int(self.ttl * 1000.0))
        step = int(longest * self.jitter) // keys
        first = longest - int(step * lot)
        return range(first, first - step * keys, -step) if step else [longest] * keys
