"""What may stand in the file: one frozen model per section, each field with its unit and the reason of its default.

`load` validates the tree with these and merges them into `settings`, which is what the service reads. A field that
`defaults:` can set is None here when nobody said it; the built-in values stand in `BUILT_IN`. Unknown keys are refused.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from cacheupdater import masking
from cacheupdater.config import units
from cacheupdater.config.addresses import Address, TcpAddress, host_port, listen_address
from cacheupdater.config.choices import (  # noqa: TC001  pydantic reads them
    Encrypted,
    Foreign,
    LogKeys,
    Policy,
    Rows,
    WrongType,
)
from cacheupdater.config.queues import queue_url
from cacheupdater.config.secrets import Url
from cacheupdater.core import cache_url, database_url
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol.encoding import Encoding  # noqa: TC001  pydantic reads it
from cacheupdater_client.protocol.spelling import Numbers, Times  # noqa: TC001  pydantic reads it

_YEAR = 366 * 86_400.0  # seconds: longer than any cache entry should live, and no integer overflows
_JITTER_MAX = 0.5  # more than half would make the ttl a lottery
_DB_TIME_MAX = 1000.0  # seconds per second: every connection of the largest pool, always busy
_BURST_MAX = 3600.0  # seconds: an hour's rows at once would be a batch job and no refresh
_WORTH_MAX = 1e6  # beyond it nothing else would ever be refreshed
_LEAST_GAIN_MAX = 1e3  # stale reads per row: beyond it hardly anything would be refreshed
_MAX_AGE_MIN = 1.0  # seconds: within one, a load would be due again before readers had its value

Text: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
Duration: TypeAlias = Annotated[float, BeforeValidator(units.duration), Field(gt=0, le=_YEAR)]
Interval: TypeAlias = Annotated[float, BeforeValidator(units.duration), Field(ge=0, le=_YEAR)]
Rate: TypeAlias = Annotated[float, BeforeValidator(units.rate), Field(gt=0, le=1e9)]
DatabaseTime: TypeAlias = Annotated[float, BeforeValidator(units.database_time), Field(gt=0, le=_DB_TIME_MAX)]
Count: TypeAlias = Annotated[int, BeforeValidator(units.whole), Field(ge=1)]


def _url(value: object, *, sql: bool = False) -> Url:
    """Messages about a URL never repeat it: it may hold a password."""
    if not isinstance(value, str) or not value.partition("://")[1]:
        raise ValueError("must be a URL such as redis://127.0.0.1:6379/0")
    if not value.isprintable() or " " in value:
        raise ValueError("holds a space or a control character")
    if why := masking.ambiguity(value, sql=sql):
        raise ValueError(why)
    return Url(value)


def _scheme(url: Url) -> str:
    """What stands before `://`, where it looks like one: in a URL that lacks its beginning that may be the password."""
    return units.shown(url.scheme) if re.fullmatch(r"[a-z][a-z0-9+.-]{0,40}", url.scheme) else "this"


def _cache_url(value: object) -> Url:
    url = _url(value)
    if url.scheme not in cache_url.SCHEMES:
        raise ValueError(
            f"{_scheme(url)} is no scheme for Redis; use redis://, rediss:// or unix://, "
            "redis+cluster:// or redis+sentinel://"
        )
    try:
        cache_url.parse(url.reveal())
    except Misconfigured as e:
        raise ValueError(str(e)) from e
    return url


_SOURCES = {
    "postgresql": ("postgresql+asyncpg",),
    "postgres": ("postgresql+asyncpg",),
    "sqlite": ("sqlite+aiosqlite",),
    "mysql": ("mysql+aiomysql", "mysql+asyncmy"),
    "mariadb": ("mariadb+aiomysql", "mariadb+asyncmy"),
}
"""Databases and the drivers that can ask them without stopping the event loop, the recommended one first."""


def _source_url(value: object) -> Url:
    url = _url(value, sql=True)
    drivers = _SOURCES.get(url.scheme.partition("+")[0], ())
    if url.scheme not in drivers:
        advice = f"write {drivers[0]}://" if drivers else "use postgresql+asyncpg or sqlite+aiosqlite"
        raise ValueError(f"{_scheme(url)} is no database and driver that can be asked; {advice}")
    if why := database_url.wrong_option(database_url.parts(url.reveal())):
        raise ValueError(why)
    return url


def _switch(value: object) -> object:
    """Helm, whose YAML is older, makes `false` of `off` before we see it."""
    return {"false": "off", "true": "on"}.get(value, value) if isinstance(value, str) else value


def _ttl(value: object) -> object:
    """`ttl: 5m` is short for `ttl: {base: 5m}`."""
    return {"base": value} if isinstance(value, str) else value


def _jitter(value: object) -> float:
    share = units.percent(value)
    if share > _JITTER_MAX:
        raise ValueError(f"must be at most {_JITTER_MAX:.0%}")
    return share


def _target(value: object) -> float:
    share = units.percent(value)
    if not 0 < share < 1:
        raise ValueError("must be more than 0% and less than 100%")
    return share


def _max_age(value: object) -> float:
    seconds = units.duration(value)
    if seconds <= _MAX_AGE_MIN:
        raise ValueError(f"must be longer than {_MAX_AGE_MIN:g}s; for a short fixed interval use every")
    return seconds


Jitter: TypeAlias = Annotated[float, BeforeValidator(_jitter)]
StateFile: TypeAlias = Annotated[Text, StringConstraints(pattern=r"[^/]$")]
CacheUrl: TypeAlias = Annotated[Url, BeforeValidator(_cache_url)]
SourceUrl: TypeAlias = Annotated[Url, BeforeValidator(_source_url)]
QueueUrl: TypeAlias = Annotated[str, BeforeValidator(queue_url)]
Listen: TypeAlias = Annotated[Address, BeforeValidator(listen_address)]
Target: TypeAlias = Annotated[float, BeforeValidator(_target)]
MaxAge: TypeAlias = Annotated[float, BeforeValidator(_max_age), Field(le=_YEAR)]
Worth: TypeAlias = Annotated[float, BeforeValidator(units.factor), Field(gt=0, le=_WORTH_MAX)]
LeastGain: TypeAlias = Annotated[float, BeforeValidator(units.factor), Field(ge=0, le=_LEAST_GAIN_MAX)]
HostPort: TypeAlias = Annotated[TcpAddress, BeforeValidator(host_port)]


class Section(BaseModel):
    """Base of every section."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        ser_json_inf_nan="null",
    )


class QueueSection(Section):
    url: QueueUrl = "memory://"
    partitions: Annotated[Count, Field(le=1024)] | None = None
    """Of a memory queue; None: 1. One process owns all of them, so more only make its units smaller. A topic has its own."""


class CacheSection(Section):
    url: CacheUrl = Field(description="where Redis is, such as redis://127.0.0.1:6379/0")


class AdminSection(Section):
    listen: HostPort = Field(
        description="where /metrics, /freshness, /livez and /readyz answer, such as 127.0.0.1:9464"
    )
    token_file: Text | None = None
    """Its first line is the token that /explain wants. None: /explain answers on a loopback address alone."""


class SourceSection(Section):
    url: SourceUrl | None = None
    """May be left out where only Python loaders use the source: it is then a budget with a name."""
    budget: Rate | None = None
    """Rows. This or `db_time`, and no default: nobody but its owner knows what a database can afford."""
    db_time: DatabaseTime | None = None
    """Seconds of statements per second, summed over the connections."""
    burst: Annotated[Duration, Field(le=_BURST_MAX)] = 1.0
    """Seconds of the rate: what a quiet moment may save for a busy one. One second is short enough for any database."""
    freshness_target: Target | None = None
    """The share of reads that shall be fresh. None: whatever the whole budget gives."""
    least_gain: LeastGain = 0.02
    """Stale reads that a row must prevent. Where a budget is larger than needed, its rows beyond this one prevent one in a
    hundred each (docs/explanation/freshness-results.md). 0: all of it is spent, even for next to nothing."""
    pool_size: Annotated[Count, Field(le=1000)] = 5
    """Connections. Five run thousands of small statements a second and are little for any database."""
    statement_timeout: Duration = 1.0
    """Seconds. A batch by primary key takes milliseconds; one that takes 1 s meets a database in trouble."""
    tls: Annotated[Encrypted, BeforeValidator(_switch)] | None = None
    """on: encrypted, with whoever answers. verify: with whom an authority vouches for. off: as it is. None: verify where `ca`
    is given, else off on this machine and on to any other. A password must not cross a network because nobody thought of it."""
    ca: Text | None = None
    """A file of authorities (PEM). None, with verify: those that this machine trusts."""
    cert: Text | None = None
    """A file with the certificate that the updater shows to the database (PEM)."""
    key: Text | None = None
    """A file with the certificate's key, without a password (PEM). None: it is in the file of `cert`."""


class LoadSection(Section):
    source: Text = Field(description="the name of a source")
    sql: Text | None = None
    table: (
        Annotated[Text, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$")]
        | None
    ) = None
    python: (
        Annotated[Text, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")] | None
    ) = None
    rows: Rows | None = None
    version_column: Text | None = None
    """A number that grows by one with each change of the row."""
    updated_at: Text | None = None
    """The time of the row's last change. Either one tells what otherwise has to be learned; both would say it twice."""


class ValueSection(Section):
    encoding: Encoding | None = None
    # PostgreSQL's columns per table
    columns: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1600)] | None = None
    numbers: Numbers | None = None
    times: Times | None = None
    foreign: Foreign | None = None
    wrong_type: WrongType | None = None

    @property
    def foreign_said(self) -> Foreign | None:
        """By either name; both at once are refused elsewhere."""
        return self.foreign or (self.wrong_type and ("replace" if self.wrong_type == "replace" else "keep"))


class TtlSection(Section):
    base: Duration | None = None
    jitter: Jitter | None = None


class RefreshSection(Section):
    policy: Policy | None = None
    every: Interval | None = None
    worth: Worth | None = None
    max_age: MaxAge | None = None


class MissingSection(Section):
    ttl: Interval | None = None


class QuotaSection(Section):
    rate: Rate = Field(description="the rows that this namespace may cost, such as 50/s")
    burst: Annotated[Count, Field(le=1_000_000)] | None = None
    """Rows. None: one second of the rate, at least 1."""


class DefaultsSection(Section):
    """What `defaults:` may say, and every namespace again."""

    ttl: Annotated[TtlSection, BeforeValidator(_ttl)] = TtlSection()
    value: ValueSection = ValueSection()
    refresh: RefreshSection = RefreshSection()
    missing: MissingSection = MissingSection()
    quota: QuotaSection | None = None
    max_backlog: Annotated[Count, Field(le=1_000_000)] | None = None


class NamespaceSection(DefaultsSection):
    key: Text = Field(description='the pattern of its keys, such as "product:{id:int}"')
    load: LoadSection = Field(description="where its rows come from, such as {source: main, table: products}")


class TopSection(Section):
    """The document without its sources, defaults and namespaces, which are validated one by one."""

    version: Annotated[Literal[1], BeforeValidator(units.whole)] = Field(description="write `version: 1`")
    listen: tuple[Listen, ...] | None = None
    queue: QueueSection = QueueSection()
    cache: CacheSection = Field(
        description='which Redis to keep fresh, such as {url: "redis://127.0.0.1:6379/0"}'
    )
    admin: AdminSection | None = None
    state: StateFile | None = None
    fleet: Text | None = None
    log_keys: LogKeys = "hash"
    """How logs and pages name a key. hash: keys are data, and a digest tells which lines speak of one key."""


BUILT_IN = DefaultsSection.model_construct(
    # What is read is at most 5 min old even if every hint were lost; jitter, so that keys written together do not expire together.
    ttl=TtlSection.model_construct(base=300.0, jitter=0.1),
    # json: readable by any client. text: no client rounds it. rfc3339: every language reads it. keep: a value that we did not write and cannot read is somebody's; it is left alone.
    value=ValueSection.model_construct(
        encoding="json", columns=None, numbers="text", times="rfc3339", foreign="keep", wrong_type=None
    ),
    # price: rows go where they prevent the most stale reads. A stale read counts once, at whatever age.
    # every, for fixed: about as old as people accept on a page, and a hot key then costs 0.2 rows a second.
    refresh=RefreshSection.model_construct(policy="price", every=5.0, worth=1.0, max_age=None),
    # 30 s: reads of rows that do not exist cost one load per key and half minute; a change ends the mark at once.
    missing=MissingSection.model_construct(ttl=30.0),
    # keys: at 500 rows a second 20 s of work, less than the 30 s after which hints are dropped anyway.
    max_backlog=10_000,
)
