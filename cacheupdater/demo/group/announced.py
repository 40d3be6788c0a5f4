"""Checks for each announced change whether a load that began after the commit has arrived in Redis.

The conductor looks every few milliseconds, with a client that leaves no hints, so that looking changes nothing. It looks for
a value that an updater has written, with the change's version or a later one: such a value was read from the database after
the commit. The check relies on nothing that an updater says of itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from queue import SimpleQueue
from typing import TYPE_CHECKING

from redis import Redis

from cacheupdater.demo import plan
from cacheupdater.demo.group.books import PAGES, TOLD
from cacheupdater.demo.shop import Database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cacheupdater.demo.lanes import Lane
    from cacheupdater.demo.shop import Change


class Announced:
    """`offer` takes changes; `look` finds those that have been served."""

    def __init__(self, redis_url: str, database: Path) -> None:
        self.total = 0
        self.delays: list[float] = []
        """Seconds from the commit to the refreshed value, for each served change; an hour makes 54,000."""
        self._cache = Redis.from_url(redis_url)
        self._database = Database(database)
        self._offered: SimpleQueue[Change] = SimpleQueue()  # emptied at each look
        self._open: defaultdict[int, list[Change]] = defaultdict(list)

    def offer(self, change: Change) -> None:
        """The back office's thread calls this when it has announced the change."""
        self._offered.put(change)

    @property
    def lost(self) -> int:
        """Changes that no load has served yet."""
        return sum(map(len, self._open.values()))

    def look(self, now: float) -> None:
        """Looks at the values of products with unserved changes."""
        while not self._offered.empty():
            change = self._offered.get()
            self._open[change.product].append(change)
            self.total += 1
        if self._open:
            for product, version in self._loaded(TOLD, list(self._open)).items():
                self._serve(product, version, now)

    def _serve(self, product: int, version: int, now: float) -> None:
        served = [change for change in self._open[product] if change.version <= version]
        self.delays += [now - change.committed for change in served]
        rest = [change for change in self._open[product] if change.version > version]
        if rest:
            self._open[product] = rest
        else:
            del self._open[product]

    def _loaded(self, page: Lane, products: Iterable[int]) -> dict[int, int]:
        """The versions of values that an updater has written."""
        values = self._values(page, products)
        return {product: value["version"] for product, value in values.items() if value.get("by")}

    def _values(self, page: Lane, products: Iterable[int]) -> dict[int, dict[str, int]]:
        asked = list(products)
        bodies = self._cache.mget([page.key(product) for product in asked])
        assert isinstance(bodies, list)
        return {product: json.loads(body) for product, body in zip(asked, bodies, strict=True) if body}

    def stale(self) -> int:
        """The number of values, of both pages and whatever wrote them, that differ from the database now."""
        products = range(1, plan.PRODUCTS + 1)
        truth = {product: self._database.product(product)["version"] for product in products}
        found = [self._values(page, products) for page in PAGES]
        return sum(value["version"] != truth[product] for page in found for product, value in page.items())

    def close(self) -> None:
        self._cache.close()
        self._database.close()
