"""Our membership in the group of one topic, by the numbers of its partitions: what the queue sees of `kafka_group`.

The queue makes one `Member` and keeps it for life. Its consumer fetches sealed batches (`parcels`). It decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import TopicPartition

from cacheupdater import kafka_group
from cacheupdater.adapters.queue_kafka import settings
from cacheupdater.adapters.queue_kafka.parcels import Parcel, Sealed, parcel
from cacheupdater.kafka_group import Denied, GroupConsumer, MovedOn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from cacheupdater_client.protocol import broker

__all__ = ["Denied", "Member", "MovedOn", "OutOfRange"]


class OutOfRange(Exception):
    """The broker no longer has the offsets at which we read."""

    def __init__(self, partitions: Iterable[int]) -> None:
        super().__init__()
        self.partitions = tuple(partitions)


class Member:
    """One consumer of one topic, in its group. Errors as `GroupConsumer` raises them."""

    def __init__(self, address: broker.Address, *, group: str, session: float, instance: str | None) -> None:
        self._topic = address.topic
        self._consumer = GroupConsumer(
            address, group=group, group_instance_id=instance, **settings.consumer(session)
        )

    async def connect(self) -> None:
        """Connect to a broker, without joining the group. It may be called again after it has raised Unavailable."""
        if not self._consumer.connected:
            await self._consumer.connect()
            self._consumer.fetch_by(Sealed)

    def join(
        self, *, revoked: Callable[[], Awaitable[None]], assigned: Callable[[Sequence[int]], None]
    ) -> None:
        """Join the group. The group waits while `revoked` runs."""

        def numbers(found: Sequence[TopicPartition]) -> None:
            assigned([at.partition for at in found])

        self._consumer.join([self._topic], revoked=revoked, assigned=numbers)

    async def close(self) -> None:
        """Leave the group, if the brokers answer. A static member does not leave: its partitions wait for its return."""
        await self._consumer.close()

    @property
    def forgotten(self) -> bool:
        """Whether the group has removed us: our session has ended, or another process has joined under our name."""
        return self._consumer.forgotten

    def rejoin(self) -> None:
        """Ask the group for a rebalance."""
        self._consumer.rejoin()

    async def partitions(self) -> int:
        """How many partitions the topic has; 0 if it does not exist, or if we may not see it."""
        return len((await self._consumer.topics()).get(self._topic, ()))

    async def refresh(self) -> int:
        """How many partitions the topic has now, by the brokers."""
        await self._consumer.refresh()
        return self.known

    @property
    def known(self) -> int:
        """How many partitions the consumer knows."""
        return self._consumer.known(self._topic)

    async def committed(self, partitions: Iterable[int]) -> dict[int, int]:
        """The committed offsets of these partitions, without partitions for which none is committed."""
        return _numbered(await self._consumer.committed(self._at(partitions)))

    def led(self, partitions: Iterable[int]) -> list[int]:
        """The partitions that have a leader now."""
        return [at.partition for at in self._consumer.led(self._at(partitions))]

    async def firsts(self, partitions: Iterable[int]) -> dict[int, int]:
        return _numbered(await self._consumer.firsts(self._at(partitions)))

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        return _numbered(await self._consumer.ends(self._at(partitions)))

    async def position(self, partition: int) -> int:
        """The offset that the consumer reads next. It passes the markers of transactions without a record."""
        return await self._consumer.position(TopicPartition(self._topic, partition))

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def pause(self, partition: int) -> None:
        self._consumer.pause(TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._consumer.resume(TopicPartition(self._topic, partition))

    async def poll(self) -> Mapping[int, Sequence[Parcel]]:
        """Parcels by partition; empty if none come for a while. Waits during a rebalance. Raises OutOfRange or Unavailable."""
        try:
            found = await self._consumer.poll(settings.POLL_WAIT)
        except kafka_group.OutOfRange as e:
            raise OutOfRange(at.partition for at in e.partitions) from e
        return {at.partition: list(map(parcel, records)) for at, records in found.items()}

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit these offsets as the present member, or not at all. Raises MovedOn, Denied or Unavailable."""
        await self._consumer.commit(
            {TopicPartition(self._topic, number): offset for number, offset in offsets.items()}
        )

    def _at(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in partitions]


def _numbered(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {at.partition: offset for at, offset in offsets.items()}
