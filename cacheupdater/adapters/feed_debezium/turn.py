"""Our place in the group of a feed: whether we have the turn, and how far each partition was read.

`feed` makes one `Turn` for each start, and aiokafka reports rebalances to it. The turn goes on through a rebalance that gives us the
same partitions again: reading continues at the same events. It is over when the group has removed us, or gives us others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiokafka import TopicPartition

    from cacheupdater.kafka_group import GroupConsumer


class Turn:
    """The turn of one consumer."""

    def __init__(self, consumer: GroupConsumer, *, give_up: Callable[[], None]) -> None:
        """`give_up` tells the group that we have no turn any more."""
        self.partitions: tuple[TopicPartition, ...] = ()  # ours; none: another has the turn
        self.next: dict[TopicPartition, int] = {}  # the offset of the next event, once the turn has begun
        self.confirmed: dict[TopicPartition, int] = {}  # the offsets that the group has
        self.over = ""  # why, if it is over
        self.moving = False  # a rebalance is under way
        self._consumer = consumer
        self._give_up = give_up

    def begin(self, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> None:
        """Reading begins here."""
        self.next, self.confirmed = dict(offsets), dict(committed)
        self._seek()

    def read(self, at: TopicPartition, offset: int) -> None:
        """Everything before the offset was read."""
        self.next[at] = offset

    async def revoked(self) -> None:
        """A rebalance begins."""
        self.moving = True
        if self.partitions and self._consumer.forgotten:
            self._give_up()
            self.over = "the group has given the turn to another updater, as this one was silent for too long"

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """A rebalance has ended."""
        self.moving = False
        given = tuple(partitions)
        if not self.next:
            self.partitions = given
        elif given == self.partitions:
            self._seek()
        else:
            self.over = (
                self.over or "the partitions of the topics have changed, or another updater reads them"
            )

    def _seek(self) -> None:
        for at, offset in self.next.items():
            self._consumer.seek(at, offset)
