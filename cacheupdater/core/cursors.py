"""How far a partition has been read, and up to where everything is finished.

Everything before `scan` has been read. Everything before `done` may be committed: these packs have only finished, declined or
dropped hints. Packs finish out of order and are committed in order. A head or tail keeps the pack of its oldest hint open.
A hint that merges into it later needs no mark of its own, for the cursor cannot pass the oldest one. The exception is a hint
that is stronger than what it merges into: its pack then *leans* on the older one, and both are read again together. The
older pack alone would stand for less. So would a fed change for a read: after a crash it may only remove the value (`fed`).

Hints that stay open for long may be put back on the queue (`put_back`), in new packs of ours. Their old packs move to the place
of the new ones: `done` may pass the old place, and not the new one. The queue names the new places, and their offsets are known
once they are read. A later pack may lean on a hint that was put back. This pack waits until the hint is finished or is put back
again, for only then does the new place say all of it.

Lives as long as the engine of one epoch; replay after a crash is cheap, so nothing else is remembered.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.peers import Peer


class OpenPack:
    """One pack on the queue, and how many heads, tails and removals still stand for its hints."""

    __slots__ = ("fed", "knows", "last", "leans", "offset", "open", "peer", "place", "placed", "since")

    def __init__(self, offset: int, since: float, peer: Peer, *, leans: bool = False) -> None:
        self.offset = self.last = offset  # `last` is that of the last leaning pack for which it stands
        self.peer = peer
        self.open = 0
        self.since = since  # when it was read
        self.place = 0  # once it was put back: the first of its new places
        self.placed = since  # when it came to its place
        self.leans = leans  # finished only when everything before it is
        self.fed = False  # changes that a feed told, and that are loaded because their keys are being read
        self.knows = (
            inf  # once it was put back: its new place stands for all that was read before this offset
        )

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
        """One of its hints was merged into an older one; if the older one alone would stand for less, this pack is finished only
        with the older one."""
        self.leans |= stronger


_ROOM = 1024  # finished packs that are kept before they are tidied up


class Cursor:
    """The two cursors of one partition."""

    __slots__ = ("_finished", "_met", "_open_packs", "_put_back", "_roomy", "_to_pass", "done", "scan")

    def __init__(self, offset: int) -> None:
        self.scan = offset
        self.done = offset
        self._open_packs: deque[OpenPack] = deque()
        self._finished: list[int] = []
        self._roomy = _ROOM
        self._put_back: list[OpenPack] = []  # those that are still open, or were a moment ago
        self._to_pass: set[int] = set()  # places of our own packs, which were not read yet
        self._met = 0  # the last place that was read

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
        open_packs, bound = self._open_packs, self._bound()
        while open_packs and not (open_packs[0].open or _waits(open_packs[0], bound)):
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
        oldest = next((each.since for each in self._open_packs if each.open), now)
        return now - min([oldest, *(each.since for each in self._put_back if each.open)])

    def _tidy(self) -> None:
        """Drop the finished packs behind an open one, so that memory follows what is open."""
        bound = self._bound()
        self._finished += [each.offset for each in self._open_packs if not (each.open or each.leans)]
        kept: deque[OpenPack] = deque()
        for each in self._open_packs:
            if each.open:
                kept.append(each)
            elif _waits(each, bound):  # packs that lean and follow each other are passed together
                if kept and not kept[-1].open:
                    kept[-1].last = each.last
                else:
                    kept.append(each)
        self._open_packs = kept
        self._roomy = 2 * len(self._open_packs) + _ROOM

    # --- putting back -----------------------------------------------------------------------------------

    def long_open(self, before: float) -> list[OpenPack]:
        """The packs with open hints that have been at their place since before this time."""
        both = dict.fromkeys([*self._open_packs, *self._put_back])
        return [each for each in both if each.open and each.placed <= before]

    def put_back(self, open_packs: Sequence[OpenPack], places: range, *, scan: int, now: float) -> bool:
        """New packs at these places say what is open of these packs, as all that was read before `scan` has left it.

        False, and nothing changes, if the first of them was read before we knew of it: then it was taken for anybody's.
        """
        if places.start <= self._met:
            return False
        for each in open_packs:
            each.place = places.start
            each.placed, each.knows, each.leans = now, scan, True
        gone = set(open_packs)
        self._open_packs = deque(each for each in self._open_packs if each not in gone)
        self._put_back = [each for each in dict.fromkeys([*self._put_back, *open_packs]) if each.open]
        self._to_pass.update(places)
        return True

    def passes(self, offset: int, place: int) -> bool:
        """Whether the pack at this offset, which has been read, is our own. Its hints are known, so it is passed over."""
        self._met = max(self._met, place)
        if place not in self._to_pass:
            return False
        self._to_pass.remove(place)
        self.scan = offset + 1
        for each in self._put_back:
            if each.open and each.place == place:
                each.offset = each.last = offset
                self._open_packs.append(each)
        return True

    def _bound(self) -> float:
        """A pack that leans waits if it was read at this offset or later: no new place may stand for it yet."""
        if not self._put_back:
            return inf
        self._put_back = [each for each in self._put_back if each.open]
        return min((each.knows for each in self._put_back), default=inf)


def _waits(open_pack: OpenPack, bound: float) -> bool:
    return open_pack.leans and open_pack.last >= bound
