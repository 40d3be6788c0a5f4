"""Who takes part in the demonstration, and what the conductor brings home. Nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.demo.books import Part
    from cacheupdater.demo.follow import Follower
    from cacheupdater.demo.lanes import Application
    from cacheupdater.demo.ledger import Ledger
    from cacheupdater.demo.shop import BackOffice
    from cacheupdater.demo.updater import Updater


@dataclass(frozen=True, slots=True)
class Stage:
    """Everybody on it."""

    ledger: Ledger
    office: BackOffice
    follower: Follower
    updater: Updater
    applications: Sequence[Application]


class Outcome(NamedTuple):
    """What the conductor brings home."""

    usual: Part
    still: Part | None  # in which the hottest products did not change; none in a short run
    outage: Part | None  # none in a short run
    hints_again: float | None  # seconds from the new updater's readiness to the first hints
    budget: int  # the largest that was in force
    steered: bool  # somebody has changed it
