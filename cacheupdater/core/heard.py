"""Counts the hints of a pack, by kind and by namespace. With the rows per namespace, that shows how many hints share a load.

The engine calls it for every pack. To resolve each key would cost more than all the rest that a held touch costs, so one key
of each pack stands for the pack. Which one changes from pack to pack, and its count is multiplied by the number of keys. So
the sum is right in the mean, and close to the truth after some hundred packs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.hints import Kind

if TYPE_CHECKING:
    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace

_STRIDE = 2_654_435_761  # a prime near 2**32 / 1.618: offsets in a row give places that lie evenly
LABELS = tuple(kind.name.lower() for kind in Kind)  # by the kind's number


def count_hints(pack: Hints, keyspace: Keyspace[Namespace], tally: Tally) -> None:
    """Adds these hints, repeated ones included."""
    keys, counts = pack.keys, pack.counts
    tally.add("hints", pack.reads, LABELS[pack.kind])
    if not keys:
        return
    at = pack.offset * _STRIDE % len(keys)
    namespace = keyspace.resolve(keys[at])
    if namespace is not None:
        tally.add("namespace_hints", (counts[at] if counts else 1) * len(keys), namespace.name)
