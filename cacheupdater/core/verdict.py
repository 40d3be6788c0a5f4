"""Whose values a namespace holds: ours, or those of an application that could not read what we would write.

One `Verdict` per namespace and process, shared by all its engines. The first values that stand in Redis decide. Before
that nothing is written, for `PATIENCE` at the most: so an application that fills its cache by itself is seen first. Where
floors of ours stand beside them, or nobody has written any by then, the namespace is ours; where most of them are foreign
it is not, until the process starts with another configuration. `now` is an argument; nothing is read here.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE = 2.0  # seconds: an application that missed a key has loaded and written it by then
ENOUGH = 20  # values that decide at once; more would cost Redis and tell nothing new


class Sight(Enum):
    """What stands at one key."""

    OWN = "own"  # a load of ours has written it
    LIKE = "like"  # the application wrote what we would write
    FOREIGN = "foreign"  # the application wrote what it could not read from us


class Seen(NamedTuple):
    """One value that was looked at; `why` tells what is foreign in it, without any value."""

    sight: Sight
    why: str = ""


class Verdict:
    """One namespace's."""

    def __init__(self) -> None:
        self.says: Literal["nothing", "ours", "foreign"] = "nothing"
        self.why = ""
        self._until: float | None = None  # then it is given, whatever has been seen
        self._seen: dict[bytes, Seen] = {}

    def wait(self, now: float) -> float:
        """Seconds until it is given at the latest. The first who asks begins it."""
        if self._until is None:
            self._until = now + PATIENCE
        return max(0.0, self._until - now)

    def saw(self, values: Mapping[bytes, Seen], now: float) -> None:
        """These values stand at their keys now; keys without any are left out."""
        if self.says != "nothing":
            return
        over = self.wait(now) <= 0.0
        self._seen.update(values)
        seen = list(self._seen.values())
        own = sum(each.sight is Sight.OWN for each in seen)
        foreign = [each for each in seen if each.sight is Sight.FOREIGN]
        theirs = len(seen) - own
        if own > theirs or (not theirs and over):
            self._give("ours")
        elif over or theirs >= ENOUGH:
            if 2 * len(foreign) > theirs:
                self.why = f"{len(foreign)} of the first {len(seen)} values are not ours: {foreign[0].why}"
            self._give("foreign" if self.why else "ours")

    def _give(self, says: Literal["ours", "foreign"]) -> None:
        self.says = says
        self._seen.clear()
