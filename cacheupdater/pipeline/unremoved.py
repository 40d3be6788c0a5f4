"""Changed keys whose old value Redis did not let go: told to people for as long as somebody may still read it.

One per process, for a namespace is one subject however many partitions it has. A partition tells it which removals it has
given up, and which keys were removed or written after all. The trouble stands until the last of its keys was served, or
until nothing was given up for `STANDS_S`. Keys are remembered to know when it is over; only the log's debug level names them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cacheupdater.pipeline.notices import Notices

log = logging.getLogger(__name__)

STANDS_S = 600.0  # seconds: twice the usual ttl, after which an old value has left Redis by itself
KEYS_MAX = 1_000  # per namespace; of more, the oldest is forgotten


class Unremoved:
    """By namespace."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._keys: dict[str, dict[bytes, None]] = {}
        self._last: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._keys)

    def given_up(self, name: str, keys: Sequence[bytes], why: str, now: float) -> None:
        """Redis has refused to remove these too often."""
        known = self._keys.setdefault(name, {})
        known.update(dict.fromkeys(keys))
        while len(known) > KEYS_MAX:
            del known[next(iter(known))]
        self._last[name] = now
        text = (
            f"{len(keys)} changed keys were given up, their old values may be read until they expire: {why}"
        )
        self._notices.trouble("removal_refused", name, text, keys=len(keys))
        log.debug("not removed in %s: %s", name, keys)

    def served(self, name: str, keys: Iterable[bytes]) -> None:
        """These were removed or written: nothing old is left of them."""
        known = self._keys.get(name)
        if known is None:
            return
        for key in keys:
            known.pop(key, None)
        if not known:
            self._over(name)

    def tick(self, now: float) -> None:
        """What was given up long ago has expired."""
        for name in [name for name, last in self._last.items() if now - last >= STANDS_S]:
            self._over(name)

    def _over(self, name: str) -> None:
        del self._keys[name], self._last[name]
        self._notices.over("removal_refused", name)
