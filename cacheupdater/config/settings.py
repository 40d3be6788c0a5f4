"""What the service reads: the configuration as final, typed, frozen values, defaults merged.

`load_config` builds one per process. Durations are seconds, rates rows per second, shares between 0 and 1. Passwords
hide inside `Url`, so that printing any of this is safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.addresses import Address, TcpAddress, UnixAddress
    from cacheupdater.config.choices import Encrypted, Foreign, LogKeys, Policy, Rows
    from cacheupdater.config.problems import Problem
    from cacheupdater.config.secrets import Url
    from cacheupdater_client.protocol.broker import Address as BrokerAddress
    from cacheupdater_client.protocol.encoding import Encoding
    from cacheupdater_client.protocol.patterns import Pattern
    from cacheupdater_client.protocol.spelling import Numbers, Times


@dataclass(frozen=True, slots=True)
class MemoryQueueConfig:
    partitions: int  # 1 to 1024

    def __str__(self) -> str:
        return f"memory://  partitions {self.partitions}"


@dataclass(frozen=True, slots=True)
class KafkaQueueConfig:
    address: BrokerAddress
    group: str  # the updaters that share the topic's partitions
    session: float  # seconds of silence after which a member's partitions go to others
    instance: (
        str | None
    )  # static membership: who comes back under its name within a session keeps its partitions

    def __str__(self) -> str:
        name = f"  instance {self.instance}" if self.instance else ""
        return f"{self.address}  group {self.group}  session {self.session:g}s{name}"


QueueConfig: TypeAlias = MemoryQueueConfig | KafkaQueueConfig


class Encryption(NamedTuple):
    """Of a source's connections; files are PEM. A plain tuple for the adapter."""

    mode: Encrypted  # on: by whoever answers; verify: by whom an authority vouches for
    ca: str | None = None  # None: those that this machine trusts
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SourceConfig:
    name: str
    url: Url | None  # None: only Python loaders use it
    budget: float | None  # rows per second
    db_time: float | None  # seconds of statements per second; this or the budget
    burst: float  # seconds of the rate that a quiet moment may save
    freshness_target: float | None  # share of reads that shall be fresh; None: spend the whole rate
    least_gain: float  # stale reads that a row must prevent
    pool_size: int  # connections
    statement_timeout: float  # seconds, below the head timeout
    encryption: Encryption = Encryption("off")  # noqa: RUF009  a tuple does not change


class Stamp(NamedTuple):
    """Which column of a row tells of its last change; a plain tuple for the adapter."""

    column: str
    kind: Literal["version", "age"]  # a number that grows, or the time of the change


@dataclass(frozen=True, slots=True)
class SqlLoad:
    source: str
    sql: str
    rows: Rows  # one row per key, or many grouped into a list
    stamp: Stamp | None = None  # only where a key has one row


@dataclass(frozen=True, slots=True)
class TableLoad:
    source: str
    table: str  # perhaps with a schema: "shop.products"
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class PythonLoad:
    source: str
    python: str  # "module:function"
    stamp: None = None  # its values are not rows


Load: TypeAlias = SqlLoad | TableLoad | PythonLoad


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    rate: float  # rows per second
    burst: int  # rows


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    name: str
    pattern: Pattern
    load: Load
    encoding: Encoding
    columns: tuple[str, ...] | None  # what of a row becomes the value; None: every column, captures included
    numbers: Numbers  # how a NUMERIC is written
    times: Times
    foreign: Foreign  # what becomes of values that we did not write and that do not read as ours
    ttl: float  # seconds
    ttl_jitter: float  # share of the ttl by which a value may live shorter, never longer
    policy: Policy
    every: float  # fixed: seconds, the least time between two refreshes for reads of one key
    worth: float  # price: a stale read here counts so many times
    max_age: float | None  # price: seconds; what is still read gets no older while the budget allows
    missing_ttl: float  # seconds that an absent row is remembered
    quota: QuotaConfig | None  # None: only the source's budget binds
    max_backlog: int  # keys that may wait


@dataclass(frozen=True, slots=True)
class Config:
    listen: tuple[Address, ...]  # at least one with a memory queue, none with Kafka
    queue: QueueConfig
    cache: Url
    admin: TcpAddress | UnixAddress | None  # the latter only of a worker, whose parent collects its pages
    admin_token: str | None = field(repr=False)  # whoever has it may ask about keys
    state: str | None  # the file of what was learned
    log_keys: LogKeys  # how logs and pages name a key
    fleet: str | None  # updaters of one name share the rates of their sources
    sources: Mapping[str, SourceConfig]
    namespaces: Mapping[str, NamespaceConfig]
    warnings: Sequence[Problem] = field(default=(), compare=False)  # of settings that do nothing
