"""What both databases check in the same way: the number of partitions, the version of the tables, the packs of a put.

`postgres` and `sqlite` call these functions when they open their tables and when packs are put. Nothing here waits or remembers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater.errors import Faulty, Misconfigured, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cacheupdater.core.depot_url import Address

VERSION = 1  # of the tables; another version's tables are refused, never changed
MEMBER_KEPT_S = (
    3600.0  # a member whose session ended so long ago is forgotten at the next start of an updater
)
DELETED_MAX = 5000  # packs that one commit deletes: some 20 ms. What is left over goes with the next commits


def number_of_partitions(address: Address, there: int, version: int) -> int:
    """How many partitions the tables have. Raises Misconfigured if they cannot be ours, or not what the URL says."""
    if version != VERSION:
        raise Misconfigured(
            f"{address} were made by another version of cacheupdater (form {version}, this one reads {VERSION}):"
            " use that version, or begin with another name"
        )
    if address.partitions not in {None, there}:
        raise Misconfigured(
            f"{address}: there are {there} partitions, and the URL says {address.partitions}:"
            " write the same number, or choose another name"
        )
    return there


def counted(packs: Sequence[tuple[int, bytes]], partitions: int) -> dict[int, int]:
    """How many packs each partition gets, in the order of partitions: all who lock rows lock them in this order."""
    counts = Counter(partition for partition, _ in packs)
    if any(not 0 <= partition < partitions for partition in counts):
        raise Faulty(f"this queue has {partitions} partitions only")
    return dict(sorted(counts.items()))


def refuse_full(partition: int, waiting: int, length: int) -> None:
    """Raises Unavailable if so many packs are more than a partition may hold. Packs behind an unfinished one count too."""
    if waiting > length:
        raise Unavailable(
            f"partition {partition} is full: {length} packs wait for its owner (length={length})"
        )


Placed: TypeAlias = list[tuple[int, int, bytes]]


def offsets(placed: Placed) -> range:
    """Where these packs of one partition lie."""
    return range(placed[0][1], placed[-1][1] + 1)


def placed(packs: Sequence[tuple[int, bytes]], last: dict[int, int]) -> Placed:
    """Partition, position and payload of each pack. `last` is each partition's position before the put."""
    rows = []
    last = last.copy()
    for partition, payload in packs:
        last[partition] += 1
        rows.append((partition, last[partition], payload))
    return rows
