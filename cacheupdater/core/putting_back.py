"""Which open hints are put back on their queue, so that a key that stays long holds up no cursor.

A row that fails for half a minute keeps its pack open. Otherwise `done` would stay at this pack, and a restart would read again
every pack that holds such a key. So hints that have waited for some seconds (`put_back_after`) are written anew, and `done` may
pass their old place. Their keys keep their seats and their next tries.

Only a few hints are put back. If many wait, their source is down, and writing all of them anew every few seconds would help nobody.
A set is put back as an announced change, which removes at worst a value once too often.
A pack is put back as a whole, once all of its open hints rest. A hint that runs just now may end in a moment.

Each engine has one `PuttingBack`. The partition calls `find`, puts the packs on its queue, and calls `placed`, or `failed`. Nothing
here waits.
"""

from __future__ import annotations

from itertools import chain
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.hints import Kind
from cacheupdater.core.seats import live_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cacheupdater.core.cursors import Cursor, OpenPack
    from cacheupdater.core.dedup import Dedup
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.removals import Removals
    from cacheupdater.core.unit import Unit

PACK_KEYS = 200  # keys of 1 KiB, the longest there are, fit into a pack of 256 KiB


class Old(NamedTuple):
    """One pack to be written."""

    kind: Kind
    keys: list[bytes]


class PutBack(NamedTuple):
    """What is to be put back together."""

    packs: Sequence[Old]
    open_packs: Sequence[OpenPack]
    scan: int  # what was read before is in `packs`


class PuttingBack:
    """The decisions for one partition."""

    def __init__(self, cursor: Cursor, dedup: Dedup, removals: Removals, limits: Limits) -> None:
        self._cursor = cursor
        self._seats = dedup.seats
        self._schedule = dedup.schedule
        self._removals = removals
        self._limits = limits
        self._look_at = -inf

    def find(self, now: float) -> PutBack | None:
        """What is to be put back now; None if nothing is. Looks now and then, for a look reads all due units."""
        cursor, limits = self._cursor, self._limits
        if now < self._look_at or cursor.scan - cursor.done < limits.put_back_behind:
            return None
        self._look_at = now + limits.prune
        old = cursor.long_open(now - limits.put_back_after)
        if not 0 < sum(each.open for each in old) <= limits.put_back_keys:
            return None
        found = self._resting(old)
        whole = [each for each in old if len(found[each]) == each.open]
        hints = [hint for each in whole for hint in found[each]]
        return PutBack(list(_packs(hints)), whole, cursor.scan) if whole else None

    def placed(self, put_back: PutBack, places: range, now: float) -> bool:
        """The packs lie at these places. False if that came too late: then they are read as anybody's, which harms nothing."""
        return self._cursor.put_back(put_back.open_packs, places, scan=put_back.scan, now=now)

    def failed(self, now: float) -> None:
        """The queue has not taken the packs, as far as we know. Each try may leave copies of them, so the next one comes later."""
        self._look_at = now + self._limits.put_back_after

    def _resting(self, old: Sequence[OpenPack]) -> dict[OpenPack, list[tuple[Kind, bytes]]]:
        """The hints for which each of these packs is open, as far as they wait: for a load, or for a removal."""
        found: dict[OpenPack, list[tuple[Kind, bytes]]] = {each: [] for each in old}
        for unit in self._due():
            open_pack = unit.demand.open_pack
            if open_pack in found:
                # a miss that came while the head ran was declined, and its pack leans on this one
                kind = max(unit.demand.kind, Kind.MISS)
                found[open_pack] += [(kind, key) for key in live_keys(self._seats, unit)]
        for removal in self._removals.resting():
            if removal.open_pack in found:
                found[removal.open_pack].append((Kind.CHANGE, removal.key))
        return found

    def _due(self) -> Iterable[Unit]:
        """Each due unit, ready or delayed."""
        schedule = self._schedule
        ready = (unit for backlog in schedule.active for queue in backlog.all_queues() for unit in queue)
        return dict.fromkeys(chain((unit for _, _, unit in schedule.delayed), ready))


def _packs(hints: Sequence[tuple[Kind, bytes]]) -> Iterator[Old]:
    for kind in Kind:
        keys = list(dict.fromkeys(key for each, key in hints if each is kind))  # no pack names a key twice
        for at in range(0, len(keys), PACK_KEYS):
            yield Old(kind, keys[at : at + PACK_KEYS])
