"""Changed keys whose old values Redis refused to remove: a trouble that stands as long as readers may find the old values.

A partition reports which removals were given up, and which keys were removed or written after all. Keys are named only at the
log's debug level, and as `log_keys` allows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cacheupdater.core.words import counted
from cacheupdater.pipeline.keyed import KeyedTrouble
from cacheupdater.pipeline.naming import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.pipeline.naming import LogKeys
    from cacheupdater.pipeline.notices import Notices

log = logging.getLogger(__name__)


class Unremoved(KeyedTrouble):
    """The keys of each namespace whose removal was given up."""

    def __init__(self, notices: Notices, log_keys: LogKeys) -> None:
        super().__init__("removal_refused", notices)
        self._log_keys = log_keys

    def given_up(self, name: str, keys: Sequence[bytes], why: str, now: float) -> None:
        """Redis has refused to remove these keys too often."""
        what = counted(len(keys), "changed key")
        text = f"{what} given up; old values may be read until they expire: {why}"
        self.met(name, keys, text, now)
        if self._log_keys != "off" and log.isEnabledFor(logging.DEBUG):
            for key in keys:
                log.debug("not removed: %s", named(key, self._log_keys))
