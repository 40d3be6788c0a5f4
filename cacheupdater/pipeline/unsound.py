"""What stands in Redis under a name of ours and cannot be ours: counted, and said once.

Redis is open to whoever may write to it. What is read there is looked at where it is read, and what no updater would have written is taken
for absent: nothing depends on it. But somebody does write there, and that is worth a line. A process makes one for its partitions
and one for the purses that it shares; `telling` and `sharing` tell it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.ports import Observer

log = logging.getLogger(__name__)

What: TypeAlias = Literal["floor", "fleet"]

_SAID: Mapping[What, str] = {
    "floor": "something else than a floor stood where a key has its floor (__crs:...) in Redis",
    "fleet": "something else than an updater's entry stood in a fleet's record (cacheupdater:fleet:...) in Redis",
}


class Unsound:
    """Lives as long as who made it; each kind has one line."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._said: set[What] = set()

    def found(self, what: What, times: int = 1) -> None:
        """So many more."""
        if not times:
            return
        self._observer.count("unsound", times, reason=what)
        if what not in self._said:
            self._said.add(what)
            log.warning(
                "%s; it was taken for absent. Who else writes there? (said once, counted on)", _SAID[what]
            )
