"""What a feed of Debezium's topics needs: topics that can be read, and events that tell the columns of keys.

`check --connect` makes one `DebeziumChecks` per source, and so does `changes install`, for which there is nothing to do: the topics
are the connector's. The last events of each topic are read without a group, so nothing is committed and no reader is disturbed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aiokafka import TopicPartition

from cacheupdater.adapters.feed_debezium import settings
from cacheupdater.adapters.feed_debezium.decode import Decoder, Unread
from cacheupdater.adapters.feed_debezium.topics import tables_of
from cacheupdater.errors import Misconfigured
from cacheupdater.feed_ports import Lack
from cacheupdater.kafka_group import GroupConsumer, OutOfRange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from cacheupdater.adapters.feed_debezium.settings import DebeziumSettings
    from cacheupdater.adapters.feed_debezium.topics import Table
    from cacheupdater.feed_ports import Cells
    from cacheupdater.kafka_group.consumer import Record
    from cacheupdater_client.protocol.broker import Address

    Unreadable: TypeAlias = Callable[[Address, Collection[str], str], Awaitable[Sequence[str]]]
    """Why members of a group could not read topics."""

LAST = 20  # records of each partition that are tried: updates and tombstones among them
POLLS = 20  # to read them: two seconds of waits at the most, if nothing comes

_NOT_JSON = (
    "the last record of {} is no JSON object: let the connector write JSON"
    " (value.converter=org.apache.kafka.connect.json.JsonConverter)"
)
_FOREIGN = (
    "the last record of {} is not in Debezium's envelope: another program writes there,"
    " or a transform such as ExtractNewRecordState has flattened it; remove the transform for this topic"
)
_UNTOLD = (
    "the events of {} do not tell {}, of which keys are made: the connector must include the column"
    " (column.include.list) and tell whole numbers or text (decimal.handling.mode=string, with schemas.enable=false"
    " in any case), or the name is wrong. Times, floats, booleans and bytes are not read"
)
_BLIND = (
    "an event of {} does not tell {} of a deleted row, so no key of its is found:"
    " ALTER TABLE … REPLICA IDENTITY FULL makes PostgreSQL tell it"
)


class DebeziumChecks:
    """The topics of one source."""

    def __init__(self, said: DebeziumSettings, unreadable: Unreadable) -> None:
        self._said = said
        self._unreadable = unreadable

    async def lacks(self) -> Sequence[Lack]:
        """As the port says."""
        said = self._said
        if troubles := await self._unreadable(said.address, (), said.group):
            return [Lack(each) for each in troubles]
        consumer = GroupConsumer(said.address, group=None, enable_auto_commit=False, auto_offset_reset="none")
        try:
            await consumer.connect()
            topics = await consumer.topics()
            try:
                tables, untold = tables_of(said.watched, topics, said.prefix)
            except Misconfigured as e:
                return [Lack(str(e))]
            lacks = [Lack(each, grave=not tables) for each in untold.values()]
            if troubles := await self._unreadable(said.address, tables, said.group):
                return [*lacks, *map(Lack, troubles)]
            last = await _last(consumer, [TopicPartition(each, n) for each in tables for n in topics[each]])
        finally:
            await consumer.close()
        for topic, table in tables.items():
            lacks += _lacks(topic, table, last.get(topic, ()))
        return lacks

    async def install(self) -> Sequence[str]:
        """Nothing: topics and connectors are not ours to make."""
        return ()

    async def remove(self) -> Sequence[str]:
        """Nothing. The group's offsets stay until the brokers forget them, or somebody deletes the group."""
        return ()

    async def script(self) -> Sequence[str]:
        """Nothing, as nothing is made."""
        return ()

    async def removal(self) -> Sequence[str]:
        """Nothing, as nothing was made."""
        return ()

    async def close(self) -> None:
        """Nothing is open between two calls."""


async def _last(
    consumer: GroupConsumer, partitions: Sequence[TopicPartition]
) -> Mapping[str, Sequence[Record]]:
    """The last records of each topic, as many as come soon."""
    firsts, ends = await consumer.firsts(partitions), await consumer.ends(partitions)
    left = {at for at in partitions if firsts[at] < ends[at]}
    found: dict[str, list[Record]] = {}
    if left:
        consumer.assign(left)
        for at in left:
            consumer.seek(at, max(firsts[at], ends[at] - LAST))
    for _ in range(POLLS):
        if not left:
            break
        try:
            polled = await consumer.poll(settings.POLL_S)
        except OutOfRange:  # deleted meanwhile
            break
        for at, records in polled.items():
            found.setdefault(at.topic, []).extend(records)
            if records[-1].offset + 1 >= ends[at]:
                left.discard(at)
    return found


class _Seen:
    """The columns of some events. That one is NULL does not show that it can be read."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._untold: set[str] = set()

    def see(self, row: Cells, columns: Sequence[str]) -> None:
        """One more row."""
        self._told |= {name for name, value in row.items() if value is not None}
        self._untold |= set(columns) - row.keys()

    @property
    def missing(self) -> str:
        return ", ".join(sorted(self._untold - self._told))


def _lacks(topic: str, table: Table, records: Iterable[Record]) -> Iterator[Lack]:
    """What the last records show."""
    decoder = Decoder(table.columns)
    present, deleted, unread, changes = _Seen(), _Seen(), "", 0
    for record in records:
        try:
            change = decoder.told(record.key, record.value)
        except Unread as e:
            unread = e.reason
            continue
        if change is not None and change.rows:
            (deleted if change.deleted else present).see(change.rows[-1], table.columns)
            unread, changes = "", changes + 1
    if unread:
        yield Lack((_NOT_JSON if unread == "malformed" else _FOREIGN).format(topic))
    elif not changes:
        yield Lack(f"no event of {topic} could be tried: it holds none just now", grave=False)
    if present.missing:
        yield Lack(_UNTOLD.format(topic, present.missing))
    if deleted.missing:
        yield Lack(_BLIND.format(topic, deleted.missing), grave=False)
