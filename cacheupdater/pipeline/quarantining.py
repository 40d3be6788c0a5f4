"""Tells people that keys of a namespace are in quarantine, for nothing loads these keys although all others are fresh.

One per process. Each partition reports its keys about once a second, so the trouble of a namespace stands as long as any
partition has one of its keys. No sentence names a key: `cacheupdater quarantine list` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.pipeline.notices import Notices


class Quarantining:
    """How many keys of each namespace are in quarantine."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._keys: dict[str, dict[str, int]] = {}  # by namespace and partition

    def __bool__(self) -> bool:
        """Whether any key is in quarantine."""
        return bool(self._keys)

    def holds(self, partition: str, keys: Mapping[str, int]) -> None:
        """So many keys of each namespace are in quarantine in this partition, and no others."""
        for name in {*keys, *self._keys}:
            by_partition = self._keys.setdefault(name, {})
            before = by_partition.pop(partition, 0)
            if name in keys:
                by_partition[partition] = keys[name]
            if not by_partition:
                del self._keys[name]
                self._notices.over("quarantined", name)
            elif before != keys.get(name, 0):
                self._tell(name, sum(by_partition.values()))

    def _tell(self, name: str, keys: int) -> None:
        many = counted(keys, "key fails by itself", "keys fail by themselves")
        what = "it" if keys == 1 else "them"
        self._notices.trouble(
            "quarantined",
            name,
            f"{many}, so nothing loads {what} for a minute; `cacheupdater quarantine list {name}` says why",
        )
