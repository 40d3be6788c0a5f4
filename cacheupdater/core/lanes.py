"""How the lanes of a depot are named, and which lane a pack belongs to.

A depot may keep two lanes per partition: touches, and urgent packs (changes and misses), for which somebody waits or a value is
wrong. Each lane has offsets and cursors of its own. The urgent lane is read first, so a change never lies behind a backlog of
touches. A lane has one number: that of touches is the number of its partition, and that of urgent packs is `~partition`, which is
below 0. In a depot without lanes the number of the partition stands for all of its packs.

Depots, the queue on them and operators' commands call these functions. Plain numbers: nothing is remembered.
"""

from __future__ import annotations

from typing import TypeAlias

from cacheupdater_client.protocol.wire import is_urgent

Lane: TypeAlias = int

FIRST = 1  # the offset of a lane's first pack


def urgent_of(partition: int) -> Lane:
    """The lane of the partition's urgent packs."""
    return ~partition


def is_urgent_lane(lane: Lane) -> bool:
    """Whether this is a lane of urgent packs."""
    return lane < 0


def partition_of_lane(lane: Lane) -> int:
    """The partition to which the lane belongs."""
    return max(lane, ~lane)


def lane_of(partition: int, payload: bytes) -> Lane:
    """The lane into which this pack of the partition goes. Bytes that are no pack hold up nothing urgent."""
    return ~partition if is_urgent(payload) else partition
