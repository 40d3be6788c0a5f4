"""The rules by which members share the partitions of a depot: who should own what, and for how long a member may work.

Each `DepotQueue` asks `plan` when its depot's roster has changed, and does what the plan says. All members compute the same
from the same roster, so they need no leader. Rendezvous hashing decides: each pair of member and partition has a number, and a
partition belongs to the member with the highest. So only partitions to or from a member that joins or leaves move.
A `Session` tells a member until when it may believe in its partitions. Nothing here is trusted by the depot: there, epochs
decide which commits count.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_RENEWALS = 6  # tries within one session: a lost renewal, or a few, must not end the session
# Seconds between two renewals at the most. Only their answers show what is free, and a killed member's partitions are promised
# to others within its session and a second.
_RENEW_WITHIN = 0.8


class Roster(NamedTuple):
    """Who shares the depot, as its answer to a renewal says."""

    members: frozenset[str]  # whose sessions run, by the depot's clock; ourselves among them
    owners: Mapping[int, str]  # partition -> living member that owns it; a partition that is left out is free


class Plan(NamedTuple):
    """What one member has to do next."""

    claim: tuple[int, ...]  # free partitions that should be ours
    release: tuple[int, ...]  # ours, that should be another living member's


def rightful(partition: int, members: Collection[str]) -> str:
    """The member that should own this partition."""
    return max(members, key=lambda member: (_weight(member, partition), member))


def plan(roster: Roster, me: str, partitions: int) -> Plan:
    """What this member has to do. A partition moves in two steps: its owner releases it, then its rightful member claims it."""
    owners = roster.owners
    mine = _share(me, roster.members, partitions)
    claim = tuple(sorted(partition for partition in mine if partition not in owners))
    release = tuple(
        sorted(partition for partition, owner in owners.items() if owner == me and partition not in mine)
    )
    return Plan(claim, release)


@lru_cache(
    maxsize=4
)  # the last few sets of members: a roster changes with each claim, its members hardly ever
def _share(me: str, members: frozenset[str], partitions: int) -> frozenset[int]:
    return frozenset(partition for partition in range(partitions) if rightful(partition, members) == me)


def _weight(member: str, partition: int) -> bytes:
    # A hash that is the same in each process. A checksum would not do: it orders the members alike for most partitions.
    return blake2b(f"{partition} {member}".encode(), digest_size=8).digest()


class Session:
    """For how long a member may believe that its session runs. Times are of the member's own monotonic clock."""

    def __init__(self, length: float) -> None:
        self.length = length
        self.every = min(_RENEW_WITHIN, length / _RENEWALS)
        """Seconds between two renewals."""
        self.until = 0.0
        """From this time on the depot may have given our partitions away."""

    def renewed(self, sent: float) -> None:
        """A renewal that was sent at this time has succeeded.

        The depot's clock began to count later than that, whenever the answer arrived. So we never believe in the session for
        longer than the depot does.
        """
        self.until = max(self.until, sent + self.length)

    def runs(self, now: float) -> bool:
        return now < self.until

    def end(self) -> None:
        """The depot says that the session is over, or we have left."""
        self.until = 0.0
