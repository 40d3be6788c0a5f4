"""Where hints come from: `memory://` for one process; `kafka://`, the streams of a Redis, or tables of a SQL database for many.

The models check a URL here (that of a feed's brokers too), and `load` turns it into a `QueueConfig` for the service. The grammars of kafka:// and redis:// are
the client's (`broker` and `streams` of `cacheupdater_client.protocol`), so that both ends of a queue are written the same way.
`core.depot_url` has that of a SQL database, which clients reach through a collector only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlencode

from cacheupdater import masking
from cacheupdater.config import units
from cacheupdater.core import depot_url
from cacheupdater_client.protocol import broker, streams

if TYPE_CHECKING:
    from cacheupdater_client.protocol.broker import Address

GROUP = "cacheupdater"
SESSION_S = 10.0  # the longest wait for a killed updater's partitions; a pause of the process for longer costs a rebalance
# Kafka's own default. An updater with a name keeps its partitions if it is back within the session, as a restarted container is
INSTANCE_SESSION_S = 45.0
SESSION_LEAST_S = (
    0.5  # for less, the broker needs a setting of its own, and any pause of the loop costs a rebalance
)
SESSION_MOST_S = 1800.0  # what brokers allow at most
DEPOT_SESSION_S = 5.0  # a takeover after a kill takes so long; a restarted updater waits for nobody
DEPOT_SESSION_LEAST_S = 1.0  # a pause of the loop must not cost partitions
PARTITIONS = 1
OPTIONS = ("group", "session_timeout", "instance")  # of an updater, besides those of the connection
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_FORMS = f"memory://, {broker.FORM}, {streams.FORM}, {depot_url.SQLITE_FORM} or {depot_url.POSTGRES_FORM}"
_SESSION = "session_timeout="
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


@dataclass(frozen=True, slots=True)
class StreamsQueueConfig:
    address: streams.Address
    session: float  # seconds of silence after which an updater's partitions go to others

    def __str__(self) -> str:
        return f"{self.address} of {masking.url(self.address.url)}  session {self.session:g}s"


@dataclass(frozen=True, slots=True)
class SqlQueueConfig:
    address: depot_url.Address
    session: float  # seconds of silence after which an updater's partitions go to others

    def __str__(self) -> str:
        where = "" if self.address.path else f" of {masking.url(self.address.url)}"
        return f"{self.address}{where}  session {self.session:g}s"


QueueConfig: TypeAlias = MemoryQueueConfig | KafkaQueueConfig | StreamsQueueConfig | SqlQueueConfig


def queue_url(value: object) -> str:
    """The URL, if it names a queue. Otherwise raises ValueError."""
    text = value if isinstance(value, str) else ""
    scheme = text.partition("://")[0]
    if scheme == "kafka":
        _kafka(text)
    elif scheme in streams.SCHEMES:
        _streams(text)
    elif scheme in depot_url.SCHEMES:
        _sql(text)
    elif text != "memory://":
        raise ValueError(f"is no queue; use {_FORMS}")
    return text


def brokers_url(value: object) -> str:
    """The URL, if it names the brokers of a cluster and no topic. Otherwise raises ValueError."""
    text = value if isinstance(value, str) else ""
    broker.parse_cluster(text)
    return text


def queue_of(url: str, partitions: int | None) -> QueueConfig:
    """The queue that a checked URL names."""
    if url == "memory://":
        return MemoryQueueConfig(partitions or PARTITIONS)
    if url.startswith("kafka://"):
        return _kafka(url)
    return _sql(url) if url.partition("://")[0] in depot_url.SCHEMES else _streams(url)


def producer_url(queue: QueueConfig) -> str:
    """The URL by which a client or a collector sends to this queue. It may hold a password. ValueError: none can."""
    if isinstance(queue, KafkaQueueConfig):
        address = queue.address
        said = {name: value for name, value in address.options.items() if name not in OPTIONS}
        return f"{address}?{urlencode(said)}" if said else str(address)
    if isinstance(queue, StreamsQueueConfig):
        return streams.spelled(queue.address)
    if isinstance(queue, SqlQueueConfig):
        return depot_url.url_of(queue.address)
    raise ValueError("is within one process, and a collector forwards to queues that updaters share")


def _kafka(url: str) -> KafkaQueueConfig:
    for name, why in _OURS.items():
        if f"{name}=" in url:
            raise ValueError(f"{name} {why}")
    address = broker.parse(url, options=OPTIONS)
    said = address.options
    usual = INSTANCE_SESSION_S if "instance" in said else SESSION_S
    session = units.duration(said["session_timeout"]) if "session_timeout" in said else usual
    if not SESSION_LEAST_S <= session <= SESSION_MOST_S:
        raise ValueError(f"session_timeout must be between {SESSION_LEAST_S:g}s and {SESSION_MOST_S:g}s")
    for name in ("group", "instance"):
        if not _NAME.fullmatch(said.get(name, GROUP)):
            raise ValueError(f"{name} must be of letters, digits, dots, - and _, at most 200")
    return KafkaQueueConfig(address, said.get("group", GROUP), session, said.get("instance"))


def _streams(text: str) -> StreamsQueueConfig:
    rest, session = _depot_session(text)
    return StreamsQueueConfig(streams.parse(rest), session)


def _sql(text: str) -> SqlQueueConfig:
    masking.keep(text)
    rest, session = _depot_session(text)
    return SqlQueueConfig(depot_url.parse(rest), session)


def _depot_session(text: str) -> tuple[str, float]:
    """The URL without `session_timeout`, and its seconds."""
    where, _, query = text.partition("?")
    said = [each for each in query.split("&") if each]
    sessions = [each.partition("=")[2] for each in said if each.startswith(_SESSION)]
    rest = "&".join(each for each in said if not each.startswith(_SESSION))
    if len(sessions) > 1:
        raise ValueError("has the option 'session_timeout' twice")
    session = units.duration(sessions[0]) if sessions else DEPOT_SESSION_S
    if not DEPOT_SESSION_LEAST_S <= session <= SESSION_MOST_S:
        raise ValueError(
            f"session_timeout must be between {DEPOT_SESSION_LEAST_S:g}s and {SESSION_MOST_S:g}s"
        )
    return f"{where}?{rest}" if rest else where, session
