"""Which namespaces are paused, as far as this process knows, and what it makes of news about that.

The service looks into Redis before its first partition works, and every second from then on, off the hot path. All partitions
hear of a change at once. While Redis does not answer, what is known still holds; nothing can be written then anyway. At the
start nothing is known to be paused. The surroundings hold one `Paused`, which lives as long as the process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from cacheupdater.core.pausing import pause_of
from cacheupdater.errors import CacheUpdaterError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.pausing import Pause
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer, Pauses

LOOK_EVERY_S = (
    1.0  # between two looks: a pause or its end reaches every updater within this time and one call
)


class Hearing(Protocol):
    """A partition, as far as this module knows it."""

    def pause(self, namespaces: Collection[Namespace]) -> None:
        """These namespaces are paused from now on, and no others."""
        ...


class Paused:
    """The paused namespaces."""

    def __init__(self, namespaces: Iterable[Namespace], *, observer: Observer, notices: Notices) -> None:
        self.pauses: Mapping[Namespace, Pause] = {}
        self._by_name = {each.name.encode(): each for each in namespaces}
        self._observer = observer
        self._notices = notices

    def under(self, namespaces: Iterable[Namespace]) -> None:
        """The namespaces are others from now on. Those that keep their names stay paused."""
        self._by_name = {each.name.encode(): each for each in namespaces}
        found = {self._by_name.get(each.name.encode()): pause for each, pause in self.pauses.items()}
        self.pauses = {each: pause for each, pause in found.items() if each is not None}

    async def follow(self, port: Pauses, partitions: Mapping[int, Hearing]) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await self.look(port, partitions)
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, port: Pauses, partitions: Mapping[int, Hearing]) -> None:
        """One look into Redis. Whatever Redis says, this raises nothing."""
        try:
            entries = await port.entries()
        except CacheUpdaterError as e:
            text = f"which namespaces are paused cannot be read; what is known still holds: {e}"
            self._notices.trouble("pauses_unread", "", text)
            return
        self._notices.over("pauses_unread", "")
        found = {
            self._by_name[name]: pause_of(entry) for name, entry in entries.items() if name in self._by_name
        }
        if found.keys() == self.pauses.keys():
            self.pauses = found
            return
        self._tell(found)
        self.pauses = found
        for partition in partitions.values():
            partition.pause(found.keys())

    def _tell(self, found: Mapping[Namespace, Pause]) -> None:
        for each in found.keys() - self.pauses.keys():
            self._notices.trouble("paused", each.name, _begun(each.name, found[each]))
            self._observer.level("paused", 1.0, label=each.name)
        for each in self.pauses.keys() - found.keys():
            self._notices.over("paused", each.name)
            self._observer.level("paused", 0.0, label=each.name)


def _begun(name: str, pause: Pause) -> str:
    return (
        f"{pause.by} has paused it: nothing of {name} is loaded, and announced changes only remove;"
        f" `cacheupdater resume {name}` ends that"
    )
