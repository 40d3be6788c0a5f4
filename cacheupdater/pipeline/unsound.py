"""Entries in Redis that have a name of ours and that no updater can have written: counted, and logged once per kind.

Other programs may write to Redis. Each reader here checks what it reads, and treats an entry that no updater would have
written as absent, so nothing depends on such entries. But some other program writes there, and that is worth a line in the
log. A process makes one `Unsound` for its partitions and one for the budgets that it shares with a fleet. `telling` and
`price.shell.sharing` report to them.
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
    "floor": "a key's floor (__crs:...) in Redis held something that no updater writes",
    "fleet": "a fleet's record (cacheupdater:fleet:...) in Redis held something that no updater writes",
}


class Unsound:
    """Counts unsound entries, and logs one line for each kind. It lives as long as its maker."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._said: set[What] = set()

    def found(self, what: What, times: int = 1) -> None:
        """So many more entries of this kind were found."""
        if not times:
            return
        self._observer.count("unsound", times, reason=what)
        if what not in self._said:
            self._said.add(what)
            log.warning(
                "%s; it was taken for absent. What else writes there? (logged once; cacheupdater_unsound_total counts)",
                _SAID[what],
            )
