"""The sections of the file: one frozen model each, every field with its unit and the reason for its default.

`load` puts `defaults:` under each namespace and validates the result with these models. The service reads the same objects.
Durations are seconds, rates rows per second, shares lie between 0 and 1. Passwords hide inside `Url`, so that printing a
section is safe. Unknown keys are refused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, model_validator

from cacheupdater.config import frameworks, units
from cacheupdater.config.choices import (  # noqa: TC001  pydantic reads them
    Encrypted,
    Foreign,
    Framework,
    LogKeys,
    Policy,
    PriorityName,
    Rows,
    Serializer,
    WrongType,
)
from cacheupdater.config.feeds import ChangeSection, Feed, Table  # noqa: TC001  pydantic reads them
from cacheupdater.config.fields import (
    BacklogAge,
    CacheUrl,
    Count,
    DatabaseTime,
    Duration,
    FailSafe,
    HostPort,
    Interval,
    Jitter,
    KeyPattern,
    LeastGain,
    Listen,
    MaxAge,
    MissingShare,
    Prefix,
    QueueUrl,
    Rate,
    SourceUrl,
    StateFile,
    Target,
    Text,
    Weight,
    Worth,
    short_backlog,
    short_fail_safe,
    short_ttl,
    switch,
)
from cacheupdater.config.section import Section
from cacheupdater.core import database_url
from cacheupdater_client.protocol.encoding import Encoding  # noqa: TC001  pydantic reads it
from cacheupdater_client.protocol.patterns import Pattern
from cacheupdater_client.protocol.spelling import Numbers, Times  # noqa: TC001  pydantic reads it

if TYPE_CHECKING:
    from typing import Self

    from cacheupdater_client.protocol.fence import Form

_BURST_MAX = 3600.0  # seconds: an hour's rows at once would be a batch job and no refresh


class Named(Section):
    """Base of the sections whose keys are names that the user chose."""

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        return self._name

    def called(self, name: str) -> Self:
        """The same section under its name."""
        named = self.model_copy()
        named._name = name  # noqa: SLF001  a copy of itself
        return named


class Encryption(NamedTuple):
    """The encryption of a source's connections; files are PEM. A plain tuple for the adapter."""

    mode: Encrypted  # on: whatever server answers; verify: only a server for which an authority vouches
    ca: str | None = None  # None: the authorities that this machine trusts
    cert: str | None = None
    key: str | None = None


class Stamp(NamedTuple):
    """The column of a row that shows its last change; a plain tuple for the adapter."""

    column: str
    kind: Literal["version", "age"]  # a number that grows, or the time of the change


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


class SourceSection(Named):
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
    tls: Annotated[Encrypted, BeforeValidator(switch)] | None = None
    """on: encrypted, with whoever answers. verify: with whom an authority vouches for. off: as it is. None: verify where `ca`
    is given, else off on this machine and on to any other. A password must not cross a network because nobody thought of it."""
    ca: Text | None = None
    """A file of authorities (PEM). None, with verify: those that this machine trusts."""
    cert: Text | None = None
    """A file with the certificate that the updater shows to the database (PEM)."""
    key: Text | None = None
    """A file with the certificate's key, without a password (PEM). None: it is in the file of `cert`."""
    changes: Feed | None = None
    """How this database tells the changes that nobody announces. None: it does not."""

    @property
    def encryption(self) -> Encryption:
        """How its connections are encrypted. `checks` refuses settings that contradict each other."""
        mode = self.tls or ("verify" if self.ca else "off" if self._is_plain else "on")
        return Encryption(mode, self.ca, self.cert, self.key)

    @property
    def _is_plain(self) -> bool:
        """Whether a source without settings of encryption stays unencrypted: it has no URL, has no TLS, or is on this machine."""
        if self.url is None:
            return True
        of = database_url.parts(self.url.reveal())
        return of.database in database_url.UNENCRYPTED or (of.local and not self.cert)


class LoadSection(Section):
    source: Text = Field(description="the name of a source")
    sql: Text | None = None
    table: Table | None = None
    python: (
        Annotated[Text, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")] | None
    ) = None
    rows: Rows = "one"  # many: the rows of a key become a list
    version_column: Text | None = None
    """A number that grows by one with each change of the row."""
    updated_at: Text | None = None
    """The time of the row's last change. Either one tells what otherwise has to be learned; both would say it twice."""

    @property
    def stamp(self) -> Stamp | None:
        if self.version_column:
            return Stamp(self.version_column, "version")
        return Stamp(self.updated_at, "age") if self.updated_at else None


class ValueSection(Section):
    encoding: Encoding = "json"  # any client reads it
    # None: every column, captures included. At most the columns of a PostgreSQL table
    columns: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1600)] | None = None
    numbers: Numbers = "text"  # no client rounds a text
    times: Times = "rfc3339"  # every language reads it
    # A value that the updater did not write and cannot read belongs to somebody
    foreign: Foreign = "keep"
    wrong_type: WrongType | None = None  # an older name of `foreign`, which `load` turns into it


class TtlSection(Section):
    base: Duration = 300.0  # a value is at most 5 min old even if every hint were lost
    jitter: Jitter = (
        0.1  # keys written together do not expire together; a value may live shorter, never longer
    )


class RefreshSection(Section):
    policy: Policy = "price"  # rows go where they prevent the most stale reads
    # fixed: about as old as people accept on a page, and a hot key then costs 0.2 rows a second
    every: Interval = 5.0
    worth: Worth = 1.0  # price: how many times a stale read counts here
    max_age: MaxAge | None = None  # price: what is still read gets no older while the budget allows


class MissingSection(Section):
    # Reads of rows that do not exist cost one load per key and half minute; a change ends the mark at once
    ttl: Interval = 30.0
    # of the quota, or of the source: most caches find nine rows of ten, and random keys take no more than a tenth
    share: MissingShare = 0.1


class FailSafeSection(Section):
    extend_to: FailSafe = Field(
        description="how long beyond its ttl a value that is read lives while its source fails, such as 1h"
    )


class QuotaSection(Section):
    rate: Rate = Field(description="the rows that this namespace may cost, such as 50/s")
    burst: Annotated[Count, Field(le=1_000_000)] | None = None
    """Rows. None: one second of the rate, at least 1."""

    @property
    def saved(self) -> int:
        """The rows that a quiet moment may save up."""
        return self.burst or max(1, math.ceil(self.rate))


class BacklogSection(Section):
    # at 500 rows a second 20 s of work, less than the 30 s after which hints are dropped anyway
    keys: Annotated[Count, Field(le=1_000_000)] = 10_000
    age: BacklogAge = (
        30.0  # what has waited longer is dropped: the cursor of its partition must not wait longer
    )


class DefaultsSection(Section):
    """The settings that `defaults:` and every namespace may have."""

    ttl: Annotated[TtlSection, BeforeValidator(short_ttl)] = TtlSection()
    value: ValueSection = ValueSection()
    refresh: RefreshSection = RefreshSection()
    missing: MissingSection = MissingSection()
    # None: a value expires with its ttl, whatever its source does. A team decides how old its values may get
    fail_safe: Annotated[FailSafeSection, BeforeValidator(short_fail_safe)] | None = None
    quota: QuotaSection | None = None
    priority: PriorityName = (
        "normal"  # high before normal before low; the lower ones keep a least share of the source
    )
    weight: Weight = 1.0  # a namespace's part of its source, beside the weights of the others of its priority
    max_backlog: Annotated[BacklogSection, BeforeValidator(short_backlog)] = BacklogSection()


class FrameworkSection(Section):
    """The framework whose cache holds the namespace: it says how keys begin, and how values are spelled."""

    kind: Framework = Field(
        description="whose cache it is: django (its own RedisCache), django-redis, flask-caching, dogpile, cashews"
        " or aiocache"
    )
    key_prefix: Prefix | None = None
    """KEY_PREFIX of Django's CACHES, CACHE_KEY_PREFIX of Flask-Caching, or what a key_mangler of dogpile puts before keys.
    None: the framework's own, which is flask_cache_ for flask-caching, and nothing for the others."""
    version: Annotated[int, BeforeValidator(units.whole), Field(ge=0, le=1_000_000_000)] = 1
    """VERSION of Django's CACHES."""
    prefix: Prefix = ""
    """The prefix that cashews' decorators are told."""
    namespace: Prefix = ""
    """The namespace of aiocache's cache."""
    serializer: Serializer | None = None
    """What spells values. None: what the framework uses, which is json for aiocache, and pickle for the others."""
    protocol: Annotated[int, BeforeValidator(units.whole), Field(ge=2, le=5)] | None = None
    """Of the pickles. None: what the framework uses, which is 4 for django-redis, dogpile and aiocache, and 5 for the others."""

    @property
    def serialized(self) -> Serializer:
        """What spells its values."""
        return self.serializer or frameworks.SERIALIZERS[self.kind][0]

    @property
    def form(self) -> Form | None:
        """How the fence recognises its values; None: as any of their serializer."""
        return frameworks.FORMS.get((self.kind, self.serialized))

    @property
    def pickled(self) -> int:
        """The protocol of its pickles: Python's highest, or its default."""
        return self.protocol or frameworks.PROTOCOLS[self.kind]

    def pattern(self, key: Pattern) -> Pattern:
        """The pattern of the keys in Redis, where the application says `key`."""
        said = {"prefix": self.prefix, "namespace": self.namespace, "key_prefix": self.key_prefix}
        before = frameworks.before(self.kind, said, self.version)
        return Pattern.compile(before.replace("{", "{{").replace("}", "}}") + key.text)


class NamespaceSection(DefaultsSection, Named):
    key: KeyPattern = Field(description='the pattern of its keys, such as "product:{id:int}"')
    load: LoadSection = Field(description="where its rows come from, such as {source: main, table: products}")
    framework: FrameworkSection | None = None
    """Whose cache the namespace is in; `key` then says the key as the application does. None: nobody's."""
    changes: Annotated[tuple[ChangeSection, ...], Field(max_length=100)] = ()
    """The tables whose changes concern these keys, as the feed of the source tells them."""
    _pattern: Pattern = PrivateAttr()

    @model_validator(mode="after")
    def _with_pattern(self) -> Self:
        self._pattern = self.framework.pattern(self.key) if self.framework else self.key
        return self

    @property
    def pattern(self) -> Pattern:
        """What the keys in Redis look like: `key`, behind the prefix of a framework."""
        return self._pattern

    @property
    def encoding(self) -> str:
        """How its values are spelled, in one word."""
        if self.framework is None:
            return self.value.encoding
        return self.framework.form or self.framework.serialized


class TopSection(Section):
    """The document without its sources, defaults and namespaces, which are validated one by one."""

    apart: ClassVar[tuple[str, ...]] = ("sources", "defaults", "namespaces")
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
