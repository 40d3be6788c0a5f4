"""How far a partition has been read, and up to where everything is finished.

`scan` is read up to here, `done` is what may be committed: every pack before it has only finished, declined or
dropped hints. Packs are done out of order and committed in order. A head or tail keeps the origin of its oldest
hint open; what merges into it later needs no mark of its own, for the cursor cannot pass the oldest.
Lives as long as the engine of one epoch; replay after a crash is cheap, so nothing else is remembered.
"""

from __future__ import annotations

from collections import deque


class Origin:
    """One pack on the queue and how many heads and tails still stand for its hints."""

    __slots__ = ("offset", "open")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.open = 0


NOWHERE = Origin(-1)
"""For refreshes that no hint asked for. Its count is never looked at."""


class Cursor:
    """The two cursors of one partition."""

    __slots__ = ("_origins", "done", "scan")

    def __init__(self, offset: int) -> None:
        self.scan = offset
        self.done = offset
        self._origins: deque[Origin] = deque()

    def read(self, offset: int) -> Origin:
        """A pack has been read: everything up to and with it has been scanned."""
        origin = Origin(offset)
        self._origins.append(origin)
        self.scan = offset + 1
        return origin

    def advance(self) -> int:
        """Move `done` over what is finished, and say where it stands."""
        origins = self._origins
        while origins and not origins[0].open:
            origins.popleft()
        self.done = origins[0].offset if origins else self.scan
        return self.done
