"""Keys that begin like ours and are nobody's: remembered, so that the next hint of one costs a look-up and no search.

The engine puts in the keys that no pattern takes. It asks before a policy learns of a key and before a key is resolved. Two
sets take turns, so forgetting needs no count per key: keys that are still hinted at stay, the others go with the older set.
The number is bounded. Lives as long as its engine; to forget a key costs no more than to meet it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cacheupdater.core.hints import Hints
    from cacheupdater_client.protocol.patterns import Pattern


class Strangers:
    """The strangers of one partition."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def put(self, keys: Iterable[bytes]) -> None:
        """These are nobody's."""
        for key in keys:
            if len(self._young) >= self._half:
                self._old, self._young = self._young, set()
            self._young.add(key)

    def among(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of these keys that are known to be nobody's."""
        found = self._young.intersection(keys)
        if self._old:
            again = self._old.intersection(keys) - found
            if again:
                self._old -= again
                self.put(again)
                found |= again
        return found

    def rest(self, keys: list[bytes]) -> tuple[list[bytes], int]:
        """These keys without those that are known to be nobody's, and how many those were."""
        strangers = self.among(keys)
        ours = [key for key in keys if key not in strangers] if strangers else keys
        return ours, len(keys) - len(ours)

    def ours(self, pattern: Pattern, keys: list[bytes]) -> list[bytes]:
        """Those that the pattern takes. The others only begin like it, and are remembered."""
        if pattern.parse_many(keys) is not None:
            return keys
        ours = [key for key in keys if pattern.takes(key)]
        self.put(set(keys).difference(ours))
        return ours

    def without(self, hints: Hints) -> tuple[Hints, int]:
        """What is left of a pack, and how many of its hints are nobody's, repeated ones counted."""
        strangers = self.among(hints.keys)
        return hints.without(strangers) if strangers else (hints, 0)
