"""What the service reads: the configuration as final, typed, frozen values, defaults merged.

`load_config` builds one per process. Durations are seconds, rates rows per second, shares between 0 and 1. Passwords
hide inside `Url`, so that printing any of this is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.config.addresses import Address, TcpAddress
    from cacheupdater.config.models import Rows, WrongType
    from cacheupdater.config.secrets import Url
    from cacheupdater.core.encoding import Encoding
    from cacheupdater.core.keyspace import Pattern


@dataclass(frozen=True, slots=True)
class QueueConfig:
    url: str  # "memory://"
    partitions: int  # 1 to 1024


@dataclass(frozen=True, slots=True)
class SourceConfig:
    name: str
    url: Url | None  # None: only Python loaders use it
    budget: float  # rows per second
    pool_size: int  # connections
    statement_timeout: float  # seconds, below the head timeout


@dataclass(frozen=True, slots=True)
class SqlLoad:
    source: str
    sql: str
    rows: Rows  # one row per key, or many grouped into a list


@dataclass(frozen=True, slots=True)
class TableLoad:
    source: str
    table: str  # perhaps with a schema: "shop.products"


@dataclass(frozen=True, slots=True)
class PythonLoad:
    source: str
    python: str  # "module:function"


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
    wrong_type: WrongType
    ttl: float  # seconds
    ttl_jitter: float  # share of the ttl by which a value may live shorter, never longer
    every: float  # seconds: the least time between two refreshes for reads of one key
    missing_ttl: float  # seconds that an absent row is remembered
    quota: QuotaConfig | None  # None: only the source's budget binds
    max_backlog: int  # keys that may wait


@dataclass(frozen=True, slots=True)
class Config:
    listen: tuple[Address, ...]  # at least one
    queue: QueueConfig
    cache: Url
    admin: TcpAddress | None
    sources: Mapping[str, SourceConfig]
    namespaces: Mapping[str, NamespaceConfig]
