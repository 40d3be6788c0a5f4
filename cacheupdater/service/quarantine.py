"""The pages about quarantined keys: what `cacheupdater quarantine` asks a running updater.

`Service` makes one `QuarantinePages`, which lives as long as the service runs. The pages tell of the partitions that this
process owns: another updater of the group answers for its own. They name keys, and the words of databases about them, so they
are data, as `/explain` is. `listed` reads. `retry` and `forget` change the list, some keys in one call; the caller asks again
while keys are left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.pipeline.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.quarantine import Quarantined
    from cacheupdater.pipeline.surroundings import Surroundings

LIST, RETRY, FORGET = "/quarantine", "/quarantine/retry", "/quarantine/forget"
LISTED_MAX = 1_000  # keys of one answer: as many as one partition holds, at most 2 MB of text
CHANGED_MAX = 200  # keys of one call: a turn of some milliseconds
ERROR_MAX = 500  # characters of an error


class _Held(NamedTuple):
    """A quarantined key, and who holds it."""

    partition: Partition
    key: bytes
    namespace: Namespace | None
    record: Quarantined


class QuarantinePages:
    """The pages of one service."""

    def __init__(self, around: Surroundings, *, partitions: Mapping[int, Partition]) -> None:
        """`partitions` are the partitions that this process owns at the moment."""
        self._around = around
        self._partitions = partitions

    async def listed(self, query: Mapping[str, bytes]) -> dict[str, object]:
        """The quarantined keys of the namespace, or of all; the oldest first."""
        wanted, now = query.get("namespace"), asyncio.get_running_loop().time()
        found = [each for each in self._held() if not wanted or _name(each).encode() == wanted]
        found.sort(key=lambda each: each.record.since)
        return {"keys": [_plain(each, now) for each in found[:LISTED_MAX]], "total": len(found)}

    async def retry(self, query: Mapping[str, bytes]) -> dict[str, object] | None:
        """The key, or some of all, are due now. Keys of paused namespaces stay, for nothing of theirs is loaded."""
        return self._change(query, Partition.retry, but=self._around.paused.pauses.keys())

    async def forget(self, query: Mapping[str, bytes]) -> dict[str, object] | None:
        """The key, or some of all, leave the list. Their next hints try again."""
        return self._change(query, lambda partition, keys: sum(map(partition.engine.quarantine.forget, keys)))

    def _change(
        self,
        query: Mapping[str, bytes],
        change: Callable[[Partition, list[bytes]], int],
        *,
        but: Collection[Namespace] = frozenset(),
    ) -> dict[str, object] | None:
        """How many keys were changed, how many of those that were asked for are left, and how many are paused."""
        one = query.get("key")
        if not one and "all" not in query:
            return None
        asked = list(self._held(one))
        free = [each for each in asked if each.namespace not in but]
        by_partition: dict[Partition, list[bytes]] = {}
        for each in free[:CHANGED_MAX]:
            by_partition.setdefault(each.partition, []).append(each.key)
        done = sum(change(partition, keys) for partition, keys in by_partition.items())
        return {"done": done, "left": len(free) - done, "paused": len(asked) - len(free)}

    def _held(self, one: bytes | None = None) -> Iterator[_Held]:
        for partition in self._partitions.values():
            keys = partition.engine.quarantine.keys
            for key in keys if not one else keys.keys() & {one}:
                yield _Held(partition, key, self._around.keyspace.resolve(key), keys[key])


def _name(held: _Held) -> str:
    return held.namespace.name if held.namespace else ""


def _plain(held: _Held, now: float) -> dict[str, object]:
    return {
        "key": held.key.decode("utf-8", "surrogateescape"),
        "namespace": _name(held),
        "error": held.record.error[:ERROR_MAX],
        "since": now - held.record.since,
        "left": 0.0 if held.record.free else max(0.0, held.record.until - now),
    }
