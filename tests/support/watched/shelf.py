"""A Redis with a value under every key that a program may change: what is missing later was invalidated."""

from __future__ import annotations

import json

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


class WrittenShelf(Shelf):
    """Of a watch that writes products through: what it finds must be the rows as they are committed."""

    def __init__(self, plain, rows):
        self._rows = rows
        super().__init__(plain)

    def gone(self):
        """The keys that were invalidated since the last call, whether they have a fresh value or none."""
        found = dict(zip(EVERY, self._plain.mget(EVERY), strict=True))
        changed = {key for key, value in found.items() if value != "old"}
        if changed:
            rows = self._rows()
            fresh = {key: json.loads(found[key]) for key in changed if found[key] is not None}
            assert fresh == {key: rows[key] for key in changed & rows.keys()}
            self._plain.mset(dict.fromkeys(changed, "old"))
        return changed
