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


_ROOM = 1024  # origins that may lie about finished before somebody tidies up


class Cursor:
    """The two cursors of one partition."""

    __slots__ = ("_origins", "_roomy", "done", "scan")

    def __init__(self, offset: int) -> None:
        self.scan = offset
        self.done = offset
        self._origins: deque[Origin] = deque()
        self._roomy = _ROOM

    def read(self, offset: int) -> Origin:
        """A pack has been read: everything up to and with it has been scanned."""
        self.scan = offset
        origin = self.here()
        self.scan = offset + 1
        return origin

    def here(self) -> Origin:
        """For a refresh that no hint asked for: hints that merge into it later are not passed either."""
        # the finished behind one that is not: memory follows what is open
        if len(self._origins) >= self._roomy:
            self._origins = deque(origin for origin in self._origins if origin.open)
            self._roomy = 2 * len(self._origins) + _ROOM
        origin = Origin(self.scan)
        self._origins.append(origin)
        return origin

    def advance(self) -> int:
        """Move `done` over what is finished, and say where it stands."""
        origins = self._origins
        while origins and not origins[0].open:
            origins.popleft()
        self.done = origins[0].offset if origins else self.scan
        return self.done
