"""A loader whose database is a dict: for tests of the layers above a loader, and of users' own services.

Change `rows` and the next load sees it; set `error` and every load raises it. `asked` remembers the batches. With `stamps`
the rows also have the time of their last change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.ports import Stamped, at_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.errors import CacheUpdaterError
    from cacheupdater.ports import Leaves
    from cacheupdater_client.protocol.patterns import Captures


class DictLoader:
    """Keeps the contract of `ports.Loader`."""

    def __init__(
        self, rows: Mapping[Captures, object] | None = None, stamps: Mapping[Captures, float] | None = None
    ) -> None:
        self.rows = dict(rows or {})
        self.stamps = None if stamps is None else dict(stamps)
        self.error: CacheUpdaterError | None = None
        self.asked: list[tuple[Captures, ...]] = []

    async def load(self, keys: Sequence[Captures], leaves: Leaves = at_once) -> Mapping[Captures, object]:
        """The present `rows` of these keys."""
        if not keys:
            return {}
        leaves()
        self.asked.append(tuple(keys))
        if self.error is not None:
            raise self.error
        found = {key: self.rows[key] for key in keys if key in self.rows}
        if self.stamps is None or not found:
            return found
        return Stamped(found, {key: self.stamps[key] for key in found if key in self.stamps})

    async def close(self) -> None:
        """Nothing to close."""
