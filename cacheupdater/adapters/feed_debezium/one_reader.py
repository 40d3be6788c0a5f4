"""Gives all partitions of a group to one member, and leaves them there: the turn of a feed.

aiokafka asks the leader of the group for an assignment at each rebalance. A member says whether it has the turn, so another one that
joins takes nothing from it. If two say so (one of them was frozen meanwhile), the first by name gets the turn, and Kafka refuses
what the other commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiokafka.cluster import ClusterMetadata

_VERSION = 0
_READS, _WAITS = b"reads", b""


def assignor() -> type[OneReader]:
    """A class of its own for each consumer, for aiokafka calls the class itself."""
    return type("OwnOneReader", (OneReader,), {"said": _WAITS})


class OneReader(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    name = "cacheupdater-one-reader"
    said = _WAITS  # of the turn, to the group

    @classmethod
    def give_up(cls) -> None:
        """We have no turn any more."""
        cls.said = _WAITS

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), cls.said)

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        reader = min(members, key=lambda member: (members[member].user_data != _READS, member))
        topics = sorted(members[reader].subscription)
        all_of = [(topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in topics]
        return {
            member: ConsumerProtocolMemberAssignment(_VERSION, all_of if member == reader else [], b"")
            for member in members
        }

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        cls.said = _READS if assignment.partitions() else _WAITS
