"""From Kafka's records to packs.

Our own clients send packs. A foreign producer may send one plain record per key: the record's key is the cache's key, and
its value is empty. Such a record becomes a pack of one touch. A record without key and value is passed on as the empty pack that it
is: intake counts it as malformed and goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cacheupdater.ports import Message
from cacheupdater_client import wire

if TYPE_CHECKING:
    from collections.abc import Sequence


def messages(records: Sequence[Any]) -> list[Message]:
    """One message per record."""
    return [Message(record.offset, record.value or _foreign(record)) for record in records]


def _foreign(record: Any) -> bytes:
    return wire.encode_pack(wire.TOUCH, record.timestamp, [record.key]) if record.key else b""
