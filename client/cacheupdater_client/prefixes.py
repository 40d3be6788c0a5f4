"""Which keys begin with one of some prefixes: those that an updater has declared, or those that a client shall emit (`only`).

The outbox makes a matcher with each hello. Plain functions: no state but what a matcher holds.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_FEW_PREFIXES = 8  # up to here a test for each prefix is faster than a search


def those(counts: Mapping[bytes, int], match: Callable[[bytes], bool]) -> dict[bytes, int]:
    """The counts of the keys that match."""
    return {key: count for key, count in counts.items() if match(key)}


def matcher(prefixes: Sequence[bytes]) -> Callable[[bytes], bool] | None:
    """Whether a key begins with one of the prefixes; None where every key does."""
    if not prefixes or b"" in prefixes:
        return None
    if len(prefixes) <= _FEW_PREFIXES:
        few = tuple(prefixes)
        return lambda key: key.startswith(few)
    ordered: list[bytes] = []
    for prefix in sorted(prefixes):
        if not ordered or not prefix.startswith(ordered[-1]):
            ordered.append(prefix)

    def matches(key: bytes) -> bool:
        """No prefix covers another, so only the last one that sorts before the key can be its own."""
        at = bisect_right(ordered, key)
        return at > 0 and key.startswith(ordered[at - 1])

    return matches
