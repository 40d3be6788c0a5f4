"""Turns Kafka's records into packs.

Our own clients send packs. Another producer may send one plain record per key: the record's key is the cache's key, and its
value is empty. Such a record becomes a pack of one touch. A record without key and value becomes an empty pack, which intake
counts as garbage. A record that is larger than any pack is replaced by a stand-in, which intake counts as too large; so the
record itself is not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from cacheupdater.adapters.queue_kafka.batches import Record

NOTHING = b""  # intake counts it as garbage
_TOO_LARGE = bytes(wire.PACK_BYTES_MAX + 1)  # one stand-in for all records that are too large


def message(record: Record) -> Message:
    """The pack of one record."""
    offset, ms, key, value = record
    if value:
        return Message(offset, value if len(value) <= wire.PACK_BYTES_MAX else _TOO_LARGE)
    if not key or len(key) > wire.KEY_BYTES_MAX:
        return Message(offset, NOTHING)
    return Message(offset, wire.encode_pack(wire.TOUCH, ms, [key]))
