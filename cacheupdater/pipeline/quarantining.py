"""Tells people that keys of a namespace are in quarantine, for nothing loads these keys although all others are fresh.

One per process. Each partition reports its keys about once a second, so the trouble of a namespace stands as long as any
partition has one of its keys. No sentence names a key: `cacheupdater quarantine list` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.pipeline.notices import Notices


class Counts(NamedTuple):
    """Keys of one namespace that are in quarantine."""

    own: int = 0  # each is at fault itself
    refused: int = 0  # no load of the namespace has succeeded since they failed first


class Quarantining:
    """How many keys of each namespace are in quarantine."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._keys: dict[str, dict[str, Counts]] = {}  # by namespace and partition

    def __bool__(self) -> bool:
        """Whether any key is in quarantine."""
        return bool(self._keys)

    def holds(self, partition: str, keys: Mapping[str, Counts]) -> None:
        """These are in quarantine in this partition, by namespace, and no others."""
        for name in {*keys, *self._keys}:
            by_partition = self._keys.setdefault(name, {})
            before = by_partition.pop(partition, None)
            if name in keys:
                by_partition[partition] = keys[name]
            if not by_partition:
                del self._keys[name]
                self._notices.over("quarantined", name)
            elif before != keys.get(name):
                own = sum(each.own for each in by_partition.values())
                refused = sum(each.refused for each in by_partition.values())
                text = f"{_said(name, own, refused)}; `cacheupdater quarantine list {name}` says why"
                self._notices.trouble("quarantined", name, text)


def _said(name: str, own: int, refused: int) -> str:
    said = []
    if own:
        many = counted(own, "key fails by itself", "keys fail by themselves")
        said.append(f"{many}, so nothing loads {'it' if own == 1 else 'them'} for a minute")
    if refused:
        many = counted(refused, "key fails", "keys fail")
        said.append(
            f"{many}, and no load of {name} has succeeded since they failed first:"
            " each partition tries one of these keys every 2 s"
        )
    return "; ".join(said)
