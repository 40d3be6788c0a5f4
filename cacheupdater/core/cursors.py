"""How far a partition has been read, and up to where everything is finished.

Everything before `scan` has been read. Everything before `done` may be committed: these packs have only finished, declined or
dropped hints. Packs finish out of order and are committed in order. A head or tail keeps the pack of its oldest hint open.
A hint that merges into it later needs no mark of its own, for the cursor cannot pass the oldest one. The exception is a hint
that is stronger than what it merges into: its pack then *leans* on the older one, and both are read again together. The
older pack alone would stand for less.
Lives as long as the engine of one epoch; replay after a crash is cheap, so nothing else is remembered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.core.peers import Peer


class OpenPack:
    """One pack on the queue, and how many heads, tails and removals still stand for its hints."""

    __slots__ = ("leans", "offset", "open", "peer", "since")

    def __init__(self, offset: int, since: float, peer: Peer, *, leans: bool = False) -> None:
        self.offset = offset
        self.peer = peer
        self.open = 0
        self.since = since  # when it was read
        self.leans = leans  # finished only when everything before it is

    def hold(self, keys: int) -> None:
        """So many heads, tails and removals stand for its hints from now on. Each releases its hold once. A key that becomes
        due again, is promoted or becomes a removal keeps its hold."""
        self.open += keys
        self.peer.open += keys

    def release(self, keys: int) -> None:
        """So many of them are finished, declined or dropped."""
        self.open -= keys
        self.peer.open -= keys

    def lean(self, stronger: bool) -> None:  # noqa: FBT001  it is the whole question
        """One of its hints was merged into an older one; if it is stronger, this pack is finished only with the older."""
        self.leans |= stronger


_ROOM = 1024  # finished packs that are kept before they are tidied up


class Cursor:
    """The two cursors of one partition."""

    __slots__ = ("_finished", "_open_packs", "_roomy", "done", "scan")

    def __init__(self, offset: int) -> None:
        self.scan = offset
        self.done = offset
        self._open_packs: deque[OpenPack] = deque()
        self._finished: list[int] = []
        self._roomy = _ROOM

    def read(self, offset: int, now: float, peer: Peer) -> OpenPack:
        """A pack of this peer has been read: everything up to and including it has been scanned."""
        self.scan = offset + 1
        return self._opened(OpenPack(offset, now, peer))

    def here(self, now: float, peer: Peer) -> OpenPack:
        """For a refresh that no hint asked for: the cursor does not pass hints that merge into it later."""
        return self._opened(OpenPack(self.scan, now, peer, leans=True))  # there is no pack to report

    def _opened(self, open_pack: OpenPack) -> OpenPack:
        if len(self._open_packs) >= self._roomy:
            self._tidy()
        self._open_packs.append(open_pack)
        return open_pack

    def advance(self) -> int:
        """Move `done` past all that is finished, and return it."""
        open_packs = self._open_packs
        while open_packs and not open_packs[0].open:
            open_packs.popleft()
        self.done = open_packs[0].offset if open_packs else self.scan
        return self.done

    def finished(self) -> list[int]:
        """The offsets of packs that were finished out of order since the last call."""
        if not self._open_packs:
            self._finished.clear()  # `done` has passed them
            return []
        self._tidy()
        finished, self._finished = self._finished, []
        return finished

    def age(self, now: float) -> float:
        """Seconds since the oldest pack was read that still has an open hint."""
        oldest = next((each for each in self._open_packs if each.open), None)
        return now - oldest.since if oldest else 0.0

    def _tidy(self) -> None:
        """Drop the finished packs behind an open one, so that memory follows what is open."""
        self._finished += [each.offset for each in self._open_packs if not (each.open or each.leans)]
        self._open_packs = deque(each for each in self._open_packs if each.open)
        self._roomy = 2 * len(self._open_packs) + _ROOM
