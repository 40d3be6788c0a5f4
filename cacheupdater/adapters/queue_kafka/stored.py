"""The packs in batches as a broker stores them, for whoever is no member of the group.

`queue purge` reads a topic with `packs`: it fetches by itself and keeps no inbox. Batches are read with the same checks and bounds
as by an updater. A batch that nobody can read counts as one empty pack at its last offset, which intake would count as garbage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_kafka.batches import Torn, records, walk
from cacheupdater.adapters.queue_kafka.codecs import Unreadable
from cacheupdater.adapters.queue_kafka.messages import NOTHING, message
from cacheupdater.ports import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.adapters.queue_kafka.batches import Batch


def packs(raw: bytes, after: int, limit: int) -> tuple[list[Message], int]:
    """At most `limit` packs at this offset and behind it, and the offset from which to go on."""
    found: list[Message] = []
    for batch in walk(raw):
        if batch.end <= after:
            continue
        for each in _of(raw, batch):
            if each.offset >= after:
                found.append(each)
                if len(found) == limit:
                    return found, each.offset + 1
        after = batch.end
    return found, after


def _of(raw: bytes, batch: Batch) -> Iterator[Message]:
    try:
        for record in records(raw, batch)[0]:
            yield message(record)
    except (Torn, Unreadable):
        yield Message(batch.end - 1, NOTHING)
