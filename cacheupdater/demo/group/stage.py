"""The parts of the demonstration, and the conductor's outcome. Plain values: nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.demo.group.announced import Announced
    from cacheupdater.demo.group.books import Part, Second
    from cacheupdater.demo.group.member import Member
    from cacheupdater.demo.opening import Shop


@dataclass(frozen=True, slots=True)
class Stage:
    """All parts. The last of the members is started later."""

    shop: Shop
    announced: Announced
    members: Sequence[Member]


class Rest(NamedTuple):
    """The state after the last change."""

    stale: int  # values that differ from the database
    lost: int  # announced changes that no load has served
    seconds: float  # that the last refreshes took


@dataclass(slots=True)
class Outcome:
    """The figures of a whole run."""

    parts: Sequence[Part] = ()
    seconds: Sequence[Second] = ()
    orphans: int = 0  # partitions of the one that was killed
    owned_after: float | None = None  # seconds from the kill until all partitions had an owner again
    joined_in: float | None = (
        None  # seconds in which some partition had no owner, while the new one took its share
    )
    shares: dict[str, int] = field(
        default_factory=dict
    )  # partitions of the updaters that are alive at the end
    announced: int = 0
    delays: Sequence[float] = ()
    rest: Rest = field(default_factory=lambda: Rest(0, 0, 0.0))
