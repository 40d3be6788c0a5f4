"""A fleet without Redis: the same rules on a dict, by a clock of the test's.

One `MemoryRecords` is the place where all owners meet; each `MemoryFleet` is one of them. The contract tests hold it to
the real script. `down` makes calls fail, before or after they were carried out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.price.shares import CLAIM_LIFE, YOUTH
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.core.price.shares import Owner
    from cacheupdater.ports import Offer


class _Entry(NamedTuple):
    until: float
    claim: float
    owner: Owner


class MemoryRecords:
    """What stands in Redis."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.entries: dict[str, dict[MemoryFleet, _Entry]] = {}
        self._born: dict[str, float] = {}

    def claimed(self, source: str) -> float:
        """The sum of the claims that are alive."""
        return sum(each.claim for each in self._alive(source).values())

    def lose(self) -> None:
        """As a server that comes back without its data."""
        self.entries.clear()
        self._born.clear()

    def exchange(self, source: str, fleet: MemoryFleet, offer: Offer) -> Grant:
        now = self.clock()
        born = self._born.setdefault(source, now)
        entries = self.entries[source] = self._alive(source)
        others = [entry for each, entry in entries.items() if each is not fleet]
        free = offer.budget - sum(each.claim for each in others)
        if now - born < YOUTH:
            free = min(free, offer.held)
        rate = max(0.0, min(offer.wanted, free))
        entries[fleet] = _Entry(now + CLAIM_LIFE, max(rate, offer.held), offer.owner)
        return Grant(rate, tuple(each.owner for each in others))

    def _alive(self, source: str) -> dict[MemoryFleet, _Entry]:
        now = self.clock()
        return {fleet: each for fleet, each in self.entries.get(source, {}).items() if each.until > now}


class MemoryFleet:
    """One owner."""

    def __init__(self, records: MemoryRecords) -> None:
        self._records = records
        self.down = ""
        """`before`: calls do not arrive. `after`: they do, but their answers do not."""

    async def exchange(self, source: str, offer: Offer) -> Grant:
        """Replace our claim."""
        if self.down == "before":
            raise Unavailable("down")
        grant = self._records.exchange(source, self, offer)
        if self.down:
            raise Unavailable("down")
        return grant

    async def leave(self, source: str) -> None:
        """Give our claim up."""
        if self.down:
            raise Unavailable("down")
        self._records.entries.get(source, {}).pop(self, None)

    async def close(self) -> None:
        """Claims stay as they are."""
