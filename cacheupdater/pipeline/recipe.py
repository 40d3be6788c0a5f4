"""How the keys of one namespace become values in Redis: which loader, which bytes, for how long.

The service builds one `Recipe` per namespace; `load` and `write` follow it. A recipe has no state.
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
    """The recipe of one namespace.

    `encode` raises Faulty for a value that it cannot express. Such a value fails its own key and no other.
    """

    loader: Loader
    writer: Writer
    encode: Callable[[object], bytes | Mapping[bytes, bytes]]
    ttl: float  # seconds: bounds the age of the values that are read, for only a refresh renews it
    # the share of the ttl by which a value may live shorter, so that a batch does not expire all at once
    jitter: float = 0.1
    form: Form = "type"  # how the fence recognises our values
    replace: bool = False  # whether our values replace foreign ones
    declared: bool = False  # in the application's code, which then says how values are spelled

    def ttls_ms(self, keys: int, lot: float) -> Sequence[int]:
        """The ttls of values that are written together, evenly spread. `lot`, drawn between 0 and 1, shifts them."""
        longest = max(1, int(self.ttl * 1000.0))
        step = int(longest * self.jitter) // keys
        first = longest - int(step * lot)
        return range(first, first - step * keys, -step) if step else [longest] * keys
