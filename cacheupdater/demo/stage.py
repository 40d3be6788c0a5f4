"""The parts of the demonstration, and the conductor's outcome. Plain values: nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cacheupdater.demo.books import Part
    from cacheupdater.demo.follow import Follower
    from cacheupdater.demo.opening import Shop
    from cacheupdater.demo.updater import Updater


@dataclass(frozen=True, slots=True)
class Stage:
    """All parts."""

    shop: Shop
    follower: Follower
    updater: Updater


class Outcome(NamedTuple):
    """The figures of a whole run."""

    usual: Part
    still: Part | None  # the hottest products did not change; None in a short run
    outage: Part | None  # None in a short run
    hints_again: float | None  # seconds from the new updater's readiness to the first hints
    budget: int  # the largest of the run
    steered: bool  # the budget was changed by hand
