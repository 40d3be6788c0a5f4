"""Changed keys whose old value Redis did not let go: told to people for as long as somebody may still read it.

A partition tells it which removals it has given up, and which keys were removed or written after all. Only the log's
debug level names keys.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cacheupdater.core.words import counted
from cacheupdater.pipeline.keyed import KeyedTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.pipeline.notices import Notices

log = logging.getLogger(__name__)


class Unremoved(KeyedTrouble):
    """By namespace."""

    def __init__(self, notices: Notices) -> None:
        super().__init__("removal_refused", notices)

    def given_up(self, name: str, keys: Sequence[bytes], why: str, now: float) -> None:
        """Redis has refused to remove these too often."""
        what = counted(len(keys), "changed key")
        text = f"{what} given up; old values may be read until they expire: {why}"
        self.met(name, keys, text, now)
        log.debug("not removed in %s: %s", name, keys)
