"""Makes batches of the records of some topics.

`feed` makes one `Batching` per turn, and puts every record in. It keeps one decoder per topic, counts what tells no change, and
remembers which tables have lost changes until a batch has said so. Every batch says which tables no topic tells yet. Nothing here
waits or does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.adapters.feed_debezium.decode import Decoder, Unread
from cacheupdater.feed_ports import Batch, Changed, Skipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokafka import TopicPartition

    from cacheupdater.adapters.feed_debezium.topics import Table
    from cacheupdater.feed_ports import Position
    from cacheupdater.kafka_group.consumer import Record

TRUNCATED = "the table was truncated"


class Batching:
    """What was read and not given."""

    def __init__(self, tables: Mapping[str, Table], lacks: Sequence[str] = ()) -> None:
        self._tables = tables
        self._lacks = lacks
        self._decoders = {topic: Decoder(table.columns) for topic, table in tables.items()}
        self._changes: list[Changed] = []
        self._emptied: dict[str, str] = {}  # why, by table
        self._skipped: dict[str, Skipped] = {}  # by reason
        self._committed: float | None = None

    @property
    def due(self) -> bool:
        """Whether a batch must be given although nothing more has come."""
        return bool(self._emptied)

    def lost(self, why: Mapping[str, str]) -> None:
        """Changes of these topics were lost."""
        self._emptied |= {self._tables[topic].told: each for topic, each in why.items()}

    def take(self, at: TopicPartition, record: Record) -> None:
        """Puts a record in."""
        table = self._tables[at.topic]
        try:
            told = self._decoders[at.topic].told(record.key, record.value)
        except Unread as e:
            where = f"{at.topic}, partition {at.partition}, offset {record.offset}"
            before = self._skipped.get(e.reason)
            self._skipped[e.reason] = Skipped(e.reason, before.records + 1 if before else 1, where)
            return
        if told is None:
            return
        self._committed = told.committed or self._committed
        if told.rows:
            self._changes.append(Changed(table.told, told.rows))
        else:
            self._emptied[table.told] = TRUNCATED

    def given(self, position: Position) -> Batch:
        """All of it, as one batch; an empty one if nothing has come."""
        why = "; ".join(dict.fromkeys(self._emptied.values()))
        batch = Batch(
            self._changes,
            position,
            self._committed,
            tuple(self._emptied),
            why,
            tuple(self._skipped.values()),
            self._lacks,
        )
        self._changes, self._emptied, self._skipped, self._committed = [], {}, {}, None
        return batch
