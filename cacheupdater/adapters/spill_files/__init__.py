"""Segments of packs in a directory: their bytes in `records`, their files and the lock in `directory`.

A collector with `--spill` opens one `SpillFiles` per process. Nothing here decides which hints are kept (`core.spilling`).
"""

from cacheupdater.adapters.spill_files.directory import Found, SpillFiles
from cacheupdater.adapters.spill_files.records import Reader

__all__ = ["Found", "Reader", "SpillFiles"]
