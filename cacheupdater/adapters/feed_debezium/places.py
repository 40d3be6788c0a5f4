"""Where a turn begins in each partition, and which topics have lost changes. Pure.

`feed` asks once at the start of its turn. A turn goes on where the group has committed. A topic of which nothing is committed begins
at its end, and counts as lost: whatever was changed before may have left an old value. So it is for a group that is new, and for one
whose offsets the brokers have forgotten, and these two cannot be told apart. A partition that was added to a topic begins at its
first event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka import TopicPartition


class Begin(NamedTuple):
    """The first offset to read in each partition, and why by topic, where changes were lost."""

    offsets: Mapping[TopicPartition, int]
    lost: Mapping[str, str]


class Offsets(NamedTuple):
    """What the brokers say of the partitions."""

    committed: Mapping[TopicPartition, int]  # without those for which nothing is committed
    firsts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def begin(said: Offsets, group: str) -> Begin:
    """The beginning of a turn."""
    known = {at.topic for at in said.committed}
    offsets: dict[TopicPartition, int] = {}
    lost: dict[str, str] = {}
    for at, first in said.firsts.items():
        end, wanted = said.ends[at], said.committed.get(at)
        if at.topic not in known:
            offsets[at] = end
            lost[at.topic] = (
                f"the group {group} has no offsets of the topic {at.topic}, and begins at its end"
            )
        elif wanted is None:
            offsets[at] = first
        elif first <= wanted <= end:
            offsets[at] = wanted
        else:
            offsets[at] = first
            cause = "has deleted events that were not read" if wanted < first else "was made again"
            lost[at.topic] = f"the topic {at.topic} {cause}"
    return Begin(offsets, lost)
