"""One change, many keys: runs the statements that find the keys of changed rows of other tables.

The reader calls `find` for each batch with lookups. Each statement is asked for a bounded number of values, and the rows that it
finds are paid from the budget of the source: a debt makes the next statement wait. An updater that owns no partition has no share
of the budget, so it leaves the feed to another one. A statement that fails again and again, or finds
too much, must not stop the feed: then all keys of its namespace in Redis count as changed. One per feed.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Protocol

from cacheupdater.errors import CacheUpdaterError, Unavailable
from cacheupdater.feeds.row_keys import keys_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from cacheupdater.feed_ports import Cell, Finder
    from cacheupdater.feeds.row_keys import Lookup
    from cacheupdater_client.protocol.patterns import Capture

VALUES_MAX = 200  # of one statement, as many as the keys of a unit
KEYS_MAX = 100_000  # of one statement: 20 MiB while they are on their way
TRIES = 3  # of one statement before it is given up
AGAIN_S = 1.0  # between two tries
LOOK_EVERY_S = 0.5  # while the budget is in debt: another share of it may come sooner
SHUT_OUT_S = (
    5.0  # without any share of the budget: longer than a hand-over of partitions, or a fleet's exchange
)


class Paying(Protocol):
    """What pays for the rows: the bucket of the source, by what a row of the namespace costs."""

    def when(self) -> float:
        """When the next statement may run, by the loop's clock; inf: not before this process gets a share of the budget."""
        ...

    def take(self, rows: int) -> None:
        """So many rows were found."""
        ...


class GivenUp(Exception):
    """A statement has failed for the last time, or has found too much."""


class Lookups:
    """The statements of one feed."""

    def __init__(self, finders: Mapping[int, Finder], paying: Callable[[str], Paying]) -> None:
        """`finders` by the number of their `Lookup`; `paying` by namespace."""
        self._finders = finders
        self._paying = paying

    async def find(self, lookup: Lookup, values: Sequence[Cell]) -> AsyncIterator[list[bytes]]:
        """The keys that rows with these values concern, statement by statement. Raises GivenUp, or
        Unavailable if this process has no share of the budget."""
        kinds: dict[type, list[Capture]] = {}
        for value in values:
            if value is not None:
                kinds.setdefault(type(value), []).append(value)
        for some in kinds.values():
            for at in range(0, len(some), VALUES_MAX):
                found = await self._found(lookup, some[at : at + VALUES_MAX])
                keys = keys_of(lookup.pattern, list(map(tuple, found)))
                yield list(dict.fromkeys(key for key in keys if key is not None))

    async def _found(self, lookup: Lookup, values: Sequence[Capture]) -> Sequence[Sequence[Cell]]:
        paying = self._paying(lookup.namespace)
        for left in reversed(range(TRIES)):
            await _until_paid(paying)
            try:
                found = await self._finders[lookup.number].find(values)
            except CacheUpdaterError as e:
                if not left:
                    raise GivenUp(str(e)) from e
                await asyncio.sleep(AGAIN_S)
            else:
                paying.take(len(found))
                if len(found) > KEYS_MAX:
                    raise GivenUp(f"one statement has found {len(found)} keys, more than {KEYS_MAX}")
                return found
        raise AssertionError("the last try returns or raises")


async def _until_paid(paying: Paying) -> None:
    """Waits until the next statement may run. If others spend meanwhile what it has waited for, it runs all the same."""
    clock = asyncio.get_running_loop().time
    began, paid = clock(), inf
    while (paid := min(paid, paying.when())) > (now := clock()):
        if paid == inf and now - began >= SHUT_OUT_S:
            raise Unavailable("this updater has no share of the budget, and another one must read the feed")
        await asyncio.sleep(min(paid - now, LOOK_EVERY_S))
