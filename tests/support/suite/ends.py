"""Whether a process has ended, although nobody may have asked for its exit code yet."""

from __future__ import annotations

import psutil


def has_ended(process):
    """`process` as psutil or a pid names it. It may vanish between two looks."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
