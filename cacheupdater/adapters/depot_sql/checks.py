"""What both databases check in the same way: the number of partitions, the version of the tables, the packs of a put.

`postgres` and `sqlite` call these functions when they open their tables and when packs are put. Nothing here waits or remembers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater.core.lanes import is_urgent_lane, partition_of_lane, urgent_of
from cacheupdater.errors import Faulty, Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.core.depot_url import Address
    from cacheupdater.core.lanes import Lane

VERSION = 2  # of the tables; another version's tables are refused, never changed. 1 had no lanes
MEMBER_KEPT_S = (
    3600.0  # a member whose session ended so long ago is forgotten at the next start of an updater
)
DELETED_MAX = 5000  # packs that one commit deletes: some 20 ms. What is left over goes with the next commits


def number_of_partitions(address: Address, there: int, version: int) -> int:
    """How many partitions the tables have. Raises Misconfigured if they cannot be ours, or not what the URL says."""
    if version != VERSION:
        raise Misconfigured(
            f"{address} were made by another version of cacheupdater (form {version}, this one reads {VERSION}):"
            " use that version, or drain them with it (collect --drain) into a queue of another kind or name"
        )
    if address.partitions not in {None, there}:
        raise Misconfigured(
            f"{address}: there are {there} partitions, and the URL says {address.partitions}:"
            " write the same number, or choose another name"
        )
    return there


Laned: TypeAlias = "Sequence[tuple[Lane, bytes]]"


def counted(packs: Laned, partitions: int) -> dict[int, tuple[int, int]]:
    """How many packs each partition gets, touches and urgent ones.

    In the order of partitions: all who lock rows lock them in this order.
    """
    counts = Counter(lane for lane, _ in packs)
    there = sorted({partition_of_lane(lane) for lane in counts})
    if there and not 0 <= there[0] <= there[-1] < partitions:
        raise Faulty(f"this queue has {partitions} partitions only")
    return {partition: (counts[partition], counts[urgent_of(partition)]) for partition in there}


def refuse_full(lane: Lane, waiting: int, length: int) -> None:
    """Raises Unavailable if so many packs are more than a lane may hold. Packs behind an unfinished one count too."""
    if waiting > length:
        kind = "urgent packs" if is_urgent_lane(lane) else "packs of touches"
        raise Unavailable(
            f"partition {partition_of_lane(lane)} is full: {length} {kind} wait for its owner (length={length})"
        )


def lasts(
    partition: int, row: tuple[int, int, int, int], counts: tuple[int, int], length: int
) -> dict[Lane, int]:
    """Where the lanes of a partition end before a put, as its row says: the position, and what waits with the put, of each lane.

    Raises Unavailable if a lane that gets packs is full. The other lane may be as full as it likes.
    """
    last, waiting, urgent_last, urgent_waiting = row
    touches, urgent = counts
    if touches:
        refuse_full(partition, waiting, length)
    if urgent:
        refuse_full(urgent_of(partition), urgent_waiting, length)
    return {partition: last, urgent_of(partition): urgent_last}


Placed: TypeAlias = "list[tuple[Lane, int, bytes]]"


def offsets(placed: Placed) -> range:
    """Where these packs of one lane lie."""
    return range(placed[0][1], placed[-1][1] + 1)


def placed(packs: Laned, last: Mapping[Lane, int]) -> Placed:
    """Lane, position and payload of each pack. `last` is each lane's position before the put."""
    rows = []
    last = dict(last)
    for lane, payload in packs:
        last[lane] += 1
        rows.append((lane, last[lane], payload))
    return rows
