"""Which keys have a row, as far as we know: a load or a reader has found it lately. All other keys are unseen.

Only a miss asks: a miss of an unseen key may be a key that somebody has made up, so it waits while too many rows turn out to
be absent (`absent_bucket`). One per `dedup`, which learns of rows from `outcomes`, and of fills. `Seen` is bounded: it knows the keys of
two generations, and forgets the older generation as a whole. A key that is forgotten although its row exists is only unseen
again. `now` is an argument.

A full generation becomes a sorted array once, in 6 ms for 19,000 keys. A set of them would take seven times as much memory,
and only misses look into the older generation.

A key is known by its hash; the key itself is not kept. Kept keys would lie scattered among memory that is freed soon, and new
keys would fill the gaps between them, scattered too: each hint would take the processor longer, by 7 % beside a dozen full
partitions. A made-up key with the hash of a known one is as good as seen; hashes have 64 bits and a secret seed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace

GENERATION_S = 20.0
"""Seconds that a generation lasts at least. If more rows are found than fit into it, the others are not remembered: in a
tenth of a second all of them would push out what was learned before, and to remember each would cost 7 % of an engine's time.
Only a partition that loads more than 950 rows a second fills a generation of 19,000 keys sooner."""

_NUMBERS = "q"  # 64 bits, as a hash has


def without_made_up(
    hints: Hints, seen: Seen, *, keyspace: Keyspace[Namespace], withheld: Collection[Namespace]
) -> Hints:
    """Misses without the unseen keys of namespaces whose absent bucket is wary: somebody may have made them up, so no
    policy shall learn them before their rows are found."""
    unseen = seen.split(hints.keys)[1]
    groups = keyspace.resolve_many(unseen)[0]
    made_up = {key for namespace, keys in groups.items() if namespace in withheld for key in keys}
    return hints.without(made_up)[0] if made_up else hints


class Seen:
    """The keys of one partition whose rows were found lately."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._young: set[int] = set()
        self._old = array(_NUMBERS)  # sorted
        self._lasts_until = -inf  # the young generation

    def __contains__(self, key: bytes) -> bool:
        return hash(key) in self._young or self._place(hash(key)) >= 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def put(self, keys: Collection[bytes], now: float) -> None:
        """The rows of these keys exist."""
        if len(self._young) >= self._half:
            if now < self._lasts_until:
                return
            self._young, self._old = set(), array(_NUMBERS, sorted(self._young))
            self._lasts_until = now + GENERATION_S
        self._young.update(map(hash, keys))

    def forget(self, keys: Collection[bytes]) -> None:
        """These rows do not exist."""
        for number in map(hash, keys):
            self._young.discard(number)
            if (at := self._place(number)) >= 0:
                del self._old[at]

    def split(self, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Of these keys, those that were seen, and the unseen ones."""
        seen = [key for key in keys if key in self]
        if not seen:
            return seen, list(keys)
        known = set(seen)
        return seen, [key for key in keys if key not in known]

    def _place(self, number: int) -> int:
        """Where the number lies in the older generation; -1 if it does not lie there."""
        at = bisect_left(self._old, number)
        return at if at < len(self._old) and self._old[at] == number else -1
