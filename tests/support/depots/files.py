"""A queue in a file of SQLite, beside a process that is frozen: a process that is frozen in a write holds up all others."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from cacheupdater.core import depot_url

GOES_ON_S = 0.01  # a process that is stopped again at once has not gone on


def is_free(path):
    """Whether no process is in the middle of a write to this file."""
    with closing(sqlite3.connect(path, timeout=1.0, isolation_level=None)) as probe:
        try:
            probe.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


def freeze(url, pause, resume):
    """Calls `pause`, and calls `resume` and `pause` again while the process is in the middle of a write to the file of this URL."""
    pause()
    if not url.startswith("sqlite"):
        return
    while not is_free(depot_url.parse(url).path):
        resume()
        time.sleep(GOES_ON_S)
        pause()
