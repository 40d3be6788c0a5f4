"""Who takes part in the demonstration, and what the conductor brings home. Nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.demo.group.announced import Announced
    from cacheupdater.demo.group.books import Part, Second
    from cacheupdater.demo.group.member import Member
    from cacheupdater.demo.lanes import Application
    from cacheupdater.demo.ledger import Ledger
    from cacheupdater.demo.shop import BackOffice


@dataclass(frozen=True, slots=True)
class Stage:
    """Everybody on it. The last of the members waits for its entrance."""

    ledger: Ledger
    office: BackOffice
    announced: Announced
    members: Sequence[Member]
    applications: Sequence[Application]


class Rest(NamedTuple):
    """What there is when nothing changes any more."""

    stale: int  # values that are not what the database says
    lost: int  # announced changes that no load has served
    seconds: float  # that the last refreshes took


@dataclass(slots=True)
class Outcome:
    """What the conductor brings home."""

    parts: Sequence[Part] = ()
    seconds: Sequence[Second] = ()
    orphans: int = 0  # partitions of the one that was killed
    owned_after: float | None = None  # seconds from the kill until all partitions had an owner again
    joined_in: float | None = None  # seconds in which some had no owner, while the new one took its share
    shares: dict[str, int] = field(default_factory=dict)  # partitions of those that are alive at the end
    announced: int = 0
    delays: Sequence[float] = ()
    rest: Rest = field(default_factory=lambda: Rest(0, 0, 0.0))
