"""The feed `debezium`: changes that Debezium's connectors have put into topics of Kafka.

`feeds.reader` reads one `DebeziumFeed` per source. All updaters are members of one consumer group, and one of them gets all
partitions (`one_reader`): that is the turn. The offsets of a batch are committed when it is confirmed, and Kafka refuses the commit
of a member whose session has ended. So what was not confirmed comes again, whoever dies.

A table may have no topic yet. The feed reads the others, says so with each batch, and looks for the topic now and then. Once the
topic is there, the turn ends, and the next one reads that topic too.

The events of one partition come in their order. Events that tell no change are counted and passed over (`decode`). Topics,
connectors and their rights belong to somebody else: nothing is made or changed there but the group's offsets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_debezium import one_reader, settings
from cacheupdater.adapters.feed_debezium.batching import Batching
from cacheupdater.adapters.feed_debezium.places import Offsets, begin
from cacheupdater.adapters.feed_debezium.topics import Found, tables_of
from cacheupdater.adapters.feed_debezium.turn import Turn
from cacheupdater.errors import CacheUpdaterError, Misconfigured, Unavailable
from cacheupdater.kafka_group import GroupConsumer, MovedOn, OutOfRange
from cacheupdater.kafka_group.settings import member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from aiokafka import TopicPartition

    from cacheupdater.adapters.feed_debezium.settings import DebeziumSettings
    from cacheupdater.feed_ports import Batch, Position
    from cacheupdater.kafka_group.consumer import Record


class DebeziumFeed:
    """The changes of the tables of one connector."""

    def __init__(self, said: DebeziumSettings) -> None:
        self._said = said
        self._consumer: GroupConsumer | None = None
        self._turn: Turn | None = None
        self._found = Found({}, {})
        self._looked = 0.0  # when the topics were listed last, by the loop's clock
        self._batching = Batching({})
        self._stopped = asyncio.Event()
        self._using = asyncio.Lock()  # held by a step, so that `stop` closes nothing beneath it

    # --- the port -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """As the port says."""
        await self._leave()
        self._stopped.clear()
        try:
            await self._take()
        except BaseException:
            await self.stop()
            raise

    async def batches(self) -> AsyncIterator[Batch]:
        """As the port says. An error gives up the turn."""
        try:
            async for batch in self._given():
                yield batch
        except CacheUpdaterError:
            await self._leave()
            raise

    async def confirm(self, position: Position) -> None:
        """As the port says. A rebalance may refuse a commit for a while, though it leaves us the turn."""
        consumer, turn = self._consumer, self._turn
        assert isinstance(position, dict)
        loop = asyncio.get_running_loop()
        ends = loop.time() + settings.CONFIRM_S
        while consumer is not None and turn is not None and not turn.over:
            news = {at: offset for at, offset in position.items() if turn.confirmed.get(at) != offset}
            if not news:
                return
            try:
                await consumer.commit(news)
            except MovedOn as e:
                if consumer.forgotten or self._stopped.is_set() or loop.time() > ends:
                    raise Unavailable(f"another updater may have the turn: {e}") from e
                await asyncio.sleep(settings.AGAIN_S)
            else:
                turn.confirmed |= news
                return
        raise Unavailable(
            (turn.over if turn else "") or "the feed is not connected, so nothing can be confirmed"
        )

    async def waiting(self) -> int | None:
        """Events that are not confirmed, and the few that tell nothing."""
        consumer, turn = self._consumer, self._turn
        if consumer is None or turn is None or not turn.next:
            return None
        ends = await consumer.ends(turn.partitions)
        return sum(max(0, end - turn.confirmed.get(at, end)) for at, end in ends.items())

    async def stop(self) -> None:
        """As the port says."""
        self._stopped.set()
        await self._leave()

    # --- the turn -------------------------------------------------------------------------------------

    async def _take(self) -> None:
        async with self._using:
            consumer, turn = await self._joined()
        while not turn.partitions and not self._stopped.is_set():
            await self._polled(consumer, turn)
        if self._stopped.is_set():
            raise Unavailable("the feed was stopped while it waited for its turn")
        async with self._using:
            await self._begin(consumer, turn)

    async def _joined(self) -> tuple[GroupConsumer, Turn]:
        said = self._said
        assignor = one_reader.assignor()
        how = member(said.session) | {
            "max_partition_fetch_bytes": settings.FETCH_BYTES,
            "fetch_max_bytes": settings.FETCH_BYTES_ALL,
            "max_poll_records": settings.EVENTS_MAX,
            "partition_assignment_strategy": (assignor,),
        }
        consumer = self._consumer = GroupConsumer(said.address, group=said.group, **how)
        await consumer.connect()
        found = self._found = await self._look(consumer)
        if not found.tables:
            raise Misconfigured(". ".join(found.lacks))
        turn = self._turn = Turn(consumer, give_up=assignor.give_up)
        self._batching = Batching(found.tables, found.lacks)
        consumer.join(found.tables, revoked=turn.revoked, assigned=turn.assigned)
        return consumer, turn

    async def _look(self, consumer: GroupConsumer) -> Found:
        self._looked = asyncio.get_running_loop().time()
        return tables_of(self._said.watched, await consumer.topics(), self._said.prefix)

    async def _begin(self, consumer: GroupConsumer, turn: Turn) -> None:
        """Finds where to read. The consumer may have read something already, which comes again."""
        partitions = turn.partitions
        committed, firsts, ends = await asyncio.gather(
            consumer.committed(partitions), consumer.firsts(partitions), consumer.ends(partitions)
        )
        found = begin(Offsets(committed, firsts, ends), self._said.group)
        if turn.partitions != partitions or consumer.forgotten:
            raise Unavailable("another updater has got the turn meanwhile")
        turn.begin(found.offsets, committed)
        self._batching.lost(found.lost)

    async def _leave(self) -> None:
        async with self._using:
            consumer, self._consumer, self._turn = self._consumer, None, None
            if consumer is not None:
                await consumer.close()

    # --- reading --------------------------------------------------------------------------------------

    async def _given(self) -> AsyncIterator[Batch]:
        clock = asyncio.get_running_loop().time
        spoke = heard = clock()
        while (consumer := self._consumer) is not None and (turn := self._turn) is not None:
            await self._end_if_more_is_told(consumer)
            polled = await self._polled(consumer, turn)
            if self._stopped.is_set():
                return
            if turn.over:
                raise Unavailable(turn.over)
            if polled or self._batching.due:
                spoke = heard = clock()
                yield self._batch(polled, turn)
            elif clock() - spoke >= settings.QUIET_S:
                if not await self._waits(consumer, turn):
                    heard = clock()
                elif clock() - heard >= settings.STALL_S:
                    raise Unavailable(f"events wait, and none has come for {settings.STALL_S:g} s")
                spoke = clock()
                yield self._batching.given(dict(turn.next))

    async def _end_if_more_is_told(self, consumer: GroupConsumer) -> None:
        """Raises Unavailable once a table has got its topic. Whoever has waited long for the turn looks at once."""
        if not self._found.untold or asyncio.get_running_loop().time() - self._looked < self._said.look:
            return
        async with self._using:
            if self._stopped.is_set():
                return
            found = await self._look(consumer)
        if told := self._found.untold.keys() - found.untold.keys():
            raise Unavailable(f"a topic tells {', '.join(sorted(told))} now: the next turn reads it too")

    async def _polled(self, consumer: GroupConsumer, turn: Turn) -> Mapping[TopicPartition, Sequence[Record]]:
        """Events of one poll. Before the turn has begun they mean nothing, and so do offsets that are missing."""
        async with self._using:
            if self._stopped.is_set():
                return {}
            try:
                return await consumer.poll(settings.POLL_S)
            except OutOfRange as e:
                if not turn.next:
                    return {}
                names = ", ".join(sorted({at.topic for at in e.partitions}))
                raise Unavailable(f"the brokers have no longer what comes next in {names}") from e

    def _batch(self, polled: Mapping[TopicPartition, Sequence[Record]], turn: Turn) -> Batch:
        for at, records in polled.items():
            for record in records:
                self._batching.take(at, record)
            turn.read(at, records[-1].offset + 1)
        return self._batching.given(dict(turn.next))

    async def _waits(self, consumer: GroupConsumer, turn: Turn) -> bool:
        """Whether events wait that were not read. Raises Unavailable if the brokers do not answer."""
        async with self._using:
            if self._stopped.is_set():
                return False
            ends = await consumer.ends(turn.partitions)
            if turn.moving:
                return False
            for at in turn.partitions:  # also behind the marks of transactions, which are no events
                turn.read(at, max(turn.next[at], await consumer.position(at)))
        return any(end > turn.next[at] for at, end in ends.items())
