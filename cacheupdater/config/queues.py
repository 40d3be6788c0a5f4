"""Where hints come from: `memory://` for one process, `kafka://` for many.

The models check a URL here, and `load` turns it into a `QueueConfig` for the service. The grammar of kafka:// is the client's
(`cacheupdater_client.protocol.broker`), so that both ends of a topic are written the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cacheupdater.config import units
from cacheupdater_client.protocol import broker

if TYPE_CHECKING:
    from cacheupdater_client.protocol.broker import Address

GROUP = "cacheupdater"
SESSION_S = 45.0  # Kafka's own default since 3.0: a restarted container is back within it
SESSION_LEAST_S = (
    0.5  # for less, the broker needs a setting of its own, and any pause of the loop costs a rebalance
)
SESSION_MOST_S = 1800.0  # what brokers allow at most
PARTITIONS = 1
OPTIONS = ("group", "session_timeout", "instance")  # of an updater, besides those of the connection
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_LATER = {"sqlite", "postgresql", "postgresql+asyncpg", "sqlite+aiosqlite"}
_OURS = {
    "enable_auto_commit": "must not be set: only what is finished is committed, or a crash would lose hints",
    "auto_offset_reset": "must not be set: reading begins with the earliest hint, or new partitions would lose theirs",
}


@dataclass(frozen=True, slots=True)
class MemoryQueueConfig:
    partitions: int  # 1 to 1024

    def __str__(self) -> str:
        return f"memory://  partitions {self.partitions}"


@dataclass(frozen=True, slots=True)
class KafkaQueueConfig:
    address: Address
    group: str  # the updaters that share the topic's partitions
    session: float  # seconds of silence after which a member's partitions go to others
    # Static membership: an updater that comes back under its name within a session keeps its partitions
    instance: str | None

    def __str__(self) -> str:
        name = f"  instance {self.instance}" if self.instance else ""
        return f"{self.address}  group {self.group}  session {self.session:g}s{name}"


QueueConfig: TypeAlias = MemoryQueueConfig | KafkaQueueConfig


def queue_url(value: object) -> str:
    """The URL, if it names a queue. Otherwise raises ValueError."""
    text = value if isinstance(value, str) else ""
    scheme = text.partition("://")[0]
    if scheme in _LATER:
        raise ValueError(f"{scheme}:// is not part of this version; use memory:// or {broker.FORM}")
    if scheme == "kafka":
        _kafka(text)
    elif text != "memory://":
        raise ValueError(f"is no queue; use memory:// or {broker.FORM}")
    return text


def queue_of(url: str, partitions: int | None) -> QueueConfig:
    """The queue that a checked URL names."""
    return MemoryQueueConfig(partitions or PARTITIONS) if url == "memory://" else _kafka(url)


def _kafka(url: str) -> KafkaQueueConfig:
    for name, why in _OURS.items():
        if f"{name}=" in url:
            raise ValueError(f"{name} {why}")
    address = broker.parse(url, options=OPTIONS)
    said = address.options
    session = units.duration(said["session_timeout"]) if "session_timeout" in said else SESSION_S
    if not SESSION_LEAST_S <= session <= SESSION_MOST_S:
        raise ValueError(f"session_timeout must be between {SESSION_LEAST_S:g}s and {SESSION_MOST_S:g}s")
    for name in ("group", "instance"):
        if not _NAME.fullmatch(said.get(name, GROUP)):
            raise ValueError(f"{name} must be of letters, digits, dots, - and _, at most 200")
    return KafkaQueueConfig(address, said.get("group", GROUP), session, said.get("instance"))
