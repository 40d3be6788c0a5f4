"""A Redis with a value under every key that a program may change: what is missing later was invalidated."""

from __future__ import annotations

IDS = 60
SKUS = "abcdef"
AMOUNTS = 100

EVERY = [
    *(f"product:{number}" for number in range(-IDS, IDS)),
    *(f"price:{sku}" for sku in SKUS),
    *(f"tens:{number}" for number in range(AMOUNTS // 10)),
]


class Shelf:
    """Looks from outside, over a plain client."""

    def __init__(self, plain):
        self._plain = plain
        self.fill()

    def fill(self):
        self._plain.mset(dict.fromkeys(EVERY, "old"))

    def gone(self):
        """The keys that were invalidated since the last call; they have a value again."""
        missing = {key for key, value in zip(EVERY, self._plain.mget(EVERY), strict=True) if value is None}
        if missing:
            self._plain.mset(dict.fromkeys(missing, "old"))
        return missing
