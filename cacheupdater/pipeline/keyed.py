"""Troubles of single keys, reported by namespace.

A trouble of a namespace is over when the last of its keys has been served, or when no key has been reported for `STANDS_S`.
There is one object per kind of trouble and process, for a namespace is one subject however many partitions it has. Partitions
report the keys that are in trouble, and the keys that were removed or written after all. The keys are remembered only to know
when the trouble is over; no sentence names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachetools import TTLCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cacheupdater.core.events import Event
    from cacheupdater.pipeline.notices import Notices

STANDS_S = 600.0  # seconds: twice the usual ttl, after which an old value has left Redis by itself
KEYS_MAX = 1_000  # per namespace; beyond it, the key that was reported longest ago is forgotten


class KeyedTrouble:
    """The keys in one kind of trouble, by namespace."""

    def __init__(self, event: Event, notices: Notices) -> None:
        self._event = event
        self._notices = notices
        self._now = 0.0
        self._keys: dict[str, TTLCache[bytes, None]] = {}

    def __bool__(self) -> bool:
        """Whether any key is in trouble."""
        return bool(self._keys)

    def met(self, name: str, keys: Sequence[bytes], text: str, now: float) -> None:
        """These keys are in trouble; `text` says so to people."""
        self._note(name, keys, now)
        self._tell(name, text, len(keys))

    def _note(self, name: str, keys: Sequence[bytes], now: float) -> None:
        self._now = max(self._now, now)
        known = self._keys.get(name)
        if known is None:
            known = self._keys[name] = TTLCache(KEYS_MAX, STANDS_S, timer=lambda: self._now)
        known.update(dict.fromkeys(keys))

    def _tell(self, name: str, text: str, keys: int) -> None:
        self._notices.trouble(self._event, name, text, keys=keys)

    def served(self, name: str, keys: Iterable[bytes]) -> None:
        """These keys were removed or written."""
        known = self._keys.get(name)
        if known is None:
            return
        for key in keys:
            known.pop(key, None)
        if not known:
            self._over(name)

    def tick(self, now: float) -> None:
        """Keys that were reported long ago expire."""
        self._now = max(self._now, now)
        for name, known in list(self._keys.items()):
            known.expire()
            if not known:
                self._over(name)

    def _over(self, name: str) -> None:
        del self._keys[name]
        self._notices.over(self._event, name)
