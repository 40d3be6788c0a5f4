"""Touches wait for company, for links that send straight to a queue: a hint in a small pack costs several times as much.

Each such link has one `Linger`, and asks it in each turn. Touches go when there are enough of them, or after half a second.
Misses and changes never linger, and no hint does while the sender is being closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater_client.protocol.wire import MISS, TOUCH

if TYPE_CHECKING:
    from cacheupdater_client.outbox import Outbox

LINGER_S = 0.5  # the longest that a touch waits for company
PACE_S = 0.09  # between cuts of touches where there are enough: each of the sender's usual turns
# touches per partition; in Kafka a hint in records of 100 costs 1.2 times as much as in records of 500, and of 20, twice
ENOUGH = 100


class Linger:
    """When the touches of one link went last."""

    def __init__(self) -> None:
        self._touched_at = float("-inf")

    def weakest(self, outbox: Outbox, now: float, partitions: int, *, hurried: bool = False) -> int:
        """The weakest kind that may go now. `hurried`: touches wait for room already, so none needs company."""
        if not outbox.touches:
            return MISS
        pace = PACE_S if outbox.touches >= ENOUGH * partitions else LINGER_S
        if not (outbox.last_call or hurried or now - self._touched_at >= pace):
            return MISS
        self._touched_at = now
        return TOUCH
