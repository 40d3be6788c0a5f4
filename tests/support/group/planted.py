"""The control of the group's stories: an updater that commits all it has read, finished or not. It must fail them.

Run as `python planted.py run -c FILE`, in the place of `python -m cacheupdater`.
"""

from __future__ import annotations

import sys

from cacheupdater.cli import main
from cacheupdater.core.cursors import Cursor


def ahead(cursor: Cursor) -> int:
    """Replaces `advance`."""
    cursor.done = cursor.scan
    return cursor.done


if __name__ == "__main__":
    Cursor.advance = ahead  # type: ignore[method-assign]  # this is the fault
    sys.exit(main())
