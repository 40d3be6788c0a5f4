"""From Kafka's records to packs.

Our own clients send packs. A foreign producer may send one plain record per key: the record's key is the cache's key, and
its value is empty. Such a record becomes a pack of one touch. A record without key and value is passed on as the empty pack that it
is: intake counts it as malformed and goes on. So it does with what is larger than any pack, which is not kept until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.ports import Message
from cacheupdater_client.protocol import wire

if TYPE_CHECKING:
    from cacheupdater.adapters.queue_kafka.batches import Record

NOTHING = b""  # intake calls it garbage
_TOO_LARGE = bytes(wire.PACK_BYTES_MAX + 1)  # one for all of them; intake calls it by its name


def message(record: Record) -> Message:
    """Of one record."""
    offset, ms, key, value = record
    if value:
        return Message(offset, value if len(value) <= wire.PACK_BYTES_MAX else _TOO_LARGE)
    if not key or len(key) > wire.KEY_BYTES_MAX:
        return Message(offset, NOTHING)
    return Message(offset, wire.encode_pack(wire.TOUCH, ms, [key]))
