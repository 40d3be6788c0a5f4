"""A fleet without Redis: the same rules on a dict, with the test's clock.

One `MemoryRecords` stands for Redis, and each `MemoryFleet` for one owner. The contract tests compare them with the real
script. `down` makes calls fail, before or after they were carried out.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.shares import CLAIM_LIFE, WAITING, YOUTH
from cacheupdater.errors import Unavailable
from cacheupdater.ports import Grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.core.shares import Owner
    from cacheupdater.ports import Offer


class _Entry(NamedTuple):
    number: int
    until: float
    claim: float
    owner: Owner
    since: float = inf  # when it began to wait; inf if it does not wait


class MemoryRecords:
    """The records in Redis."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.entries: dict[str, dict[object, _Entry]] = {}
        self.born: dict[str, float] = {}
        """By source. A test that sets an earlier time begins with a fleet that is not young."""

    def claimed(self, source: str) -> float:
        """The sum of the claims that are alive."""
        return sum(each.claim for each in self._alive(source).values())

    def lose(self) -> None:
        """Forgets all, as a server does that comes back without its data."""
        self.entries.clear()
        self.born.clear()

    def exchange(self, source: str, fleet: object, offer: Offer, number: int) -> Grant | None:
        """The grant; None if a newer call of the same owner came first."""
        now = self.clock()
        last = self.entries.get(source, {}).get(fleet)
        if last is not None and last.number >= number:
            return None
        born = self.born.setdefault(source, now)
        entries = self.entries[source] = self._alive(source)
        others = [entry for each, entry in entries.items() if each is not fleet]
        free = offer.budget - sum(each.claim for each in others)
        if now - born < YOUTH:
            free = min(free, offer.held)
        before = entries.get(fleet)
        since = min(now, before.since) if before else now
        first = inf if offer.held else since  # an owner that holds something does not wait, and keeps it
        missed = now + CLAIM_LIFE - WAITING
        ahead = sum(each.since < first and each.until > missed for each in others)
        free = max(free - ahead * offer.least, min(free, offer.held))
        rate = max(0.0, min(offer.wanted, free))
        if rate < offer.least * (1.0 - 1e-9):
            rate = 0.0
        waits = offer.wanted > 0.0 and rate == 0.0
        claim = max(rate, offer.held)
        entries[fleet] = _Entry(number, now + CLAIM_LIFE, claim, offer.owner, since if waits else inf)
        return Grant(rate, tuple(each.owner for each in others), ahead)

    def leave(self, source: str, fleet: object) -> None:
        """Removes this owner's claim."""
        self.entries.get(source, {}).pop(fleet, None)

    def _alive(self, source: str) -> dict[object, _Entry]:
        now = self.clock()
        return {fleet: each for fleet, each in self.entries.get(source, {}).items() if each.until > now}


class MemoryFleet:
    """One owner."""

    def __init__(self, records: MemoryRecords) -> None:
        self._records = records
        self._numbers = count(1)
        self.down = ""
        """`before`: calls do not arrive. `after`: calls arrive, but their answers do not."""

    async def exchange(self, source: str, offer: Offer) -> Grant:
        """Replaces our claim."""
        if self.down == "before":
            raise Unavailable("down")
        grant = self._records.exchange(source, self, offer, next(self._numbers))
        if self.down:
            raise Unavailable("down")
        if grant is None:
            raise Unavailable("a newer call of this updater came first")
        return grant

    async def leave(self, source: str) -> None:
        """Gives up our claim."""
        if self.down:
            raise Unavailable("down")
        self._records.leave(source, self)

    async def close(self) -> None:
        """Leaves claims as they are."""
