"""The types of the settings: how a duration, a rate, a URL or a key pattern is read from text, and what is refused.

`models` builds its sections of these, and `schema` describes the text that each of them takes. Pure functions of one value:
nothing is opened or looked up, and no message repeats a URL, for it may hold a password.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, InstanceOf, StringConstraints

from cacheupdater import masking
from cacheupdater.config import units
from cacheupdater.config.addresses import Address, TcpAddress, host_port, listen_address
from cacheupdater.config.queues import brokers_url, queue_url
from cacheupdater.config.secrets import Url
from cacheupdater.core import cache_url as redis_url
from cacheupdater.core import database_url
from cacheupdater.core.limits import Limits
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol.lease import FAIL_SAFE_S_MAX, FAIL_SAFE_S_MIN
from cacheupdater_client.protocol.patterns import Pattern

_BACKLOG_AGE = Limits().backlog_age
_YEAR = 366 * 86_400.0  # seconds: longer than any cache entry should live, and no integer overflows
_JITTER_MAX = 0.5  # more than half would make the ttl a lottery
_DB_TIME_MAX = 1000.0  # seconds per second: every connection of the largest pool, always busy
_WEIGHT_MIN, _WEIGHT_MAX = 0.01, 100.0  # a namespace of a smaller part is meant to wait: see priority
_WORTH_MAX = 1e6  # beyond it nothing else would ever be refreshed
_LEAST_GAIN_MAX = 1e3  # stale reads per row: beyond it hardly anything would be refreshed
_MAX_AGE_MIN = 1.0  # seconds: within one, a load would be due again before readers had its value

Text: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
Prefix: TypeAlias = Annotated[str, StringConstraints(max_length=200, pattern=r"^[!-~]*$")]
Duration: TypeAlias = Annotated[float, BeforeValidator(units.duration), Field(gt=0, le=_YEAR)]
FailSafe: TypeAlias = Annotated[
    float, BeforeValidator(units.duration), Field(ge=FAIL_SAFE_S_MIN, le=FAIL_SAFE_S_MAX)
]
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
    """The scheme, if it looks like one. In a URL that lacks its beginning, the text before `://` may be the password."""
    return units.shown(url.scheme) if re.fullmatch(r"[a-z][a-z0-9+.-]{0,40}", url.scheme) else "this"


def cache_url(value: object) -> Url:
    url = _url(value)
    if url.scheme not in redis_url.SCHEMES:
        raise ValueError(
            f"{_scheme(url)} is no scheme for Redis; use redis://, rediss:// or unix://, "
            "redis+cluster:// or redis+sentinel://"
        )
    try:
        redis_url.parse(url.reveal())
    except Misconfigured as e:
        raise ValueError(str(e)) from e
    return url


DRIVERS = {
    "postgresql": ("postgresql+asyncpg",),
    "postgres": ("postgresql+asyncpg",),
    "sqlite": ("sqlite+aiosqlite",),
    "mysql": ("mysql+aiomysql", "mysql+asyncmy"),
    "mariadb": ("mariadb+aiomysql", "mariadb+asyncmy"),
}
"""Databases and the drivers that can ask them without stopping the event loop, the recommended one first."""


def source_url(value: object) -> Url:
    url = _url(value, sql=True)
    drivers = DRIVERS.get(url.scheme.partition("+")[0], ())
    if url.scheme not in drivers:
        advice = f"write {drivers[0]}://" if drivers else "use postgresql+asyncpg or sqlite+aiosqlite"
        raise ValueError(f"{_scheme(url)} is no database and driver that can be asked; {advice}")
    if why := database_url.wrong_option(database_url.parts(url.reveal())):
        raise ValueError(why)
    return url


def key_pattern(value: object) -> Pattern:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004  pydantic makes a problem of it, of a TypeError it would not
    return Pattern.compile(value)


def switch(value: object) -> object:
    """Helm's older YAML turns `off` into `false` before we see it."""
    return {"false": "off", "true": "on"}.get(value, value) if isinstance(value, str) else value


def short_ttl(value: object) -> object:
    """`ttl: 5m` is short for `ttl: {base: 5m}`."""
    return {"base": value} if isinstance(value, str) else value


def short_fail_safe(value: object) -> object:
    """`fail_safe: 1h`, as a declared value says it, is short for `fail_safe: {extend_to: 1h}`."""
    return {"extend_to": value} if isinstance(value, str) else value


def short_feed(value: object) -> object:
    """`changes: replication` is short for `changes: {replication: {}}`."""
    return {value: {}} if isinstance(value, str) else value


def short_backlog(value: object) -> object:
    """`max_backlog: 5000` is short for `max_backlog: {keys: 5000}`."""
    return {"keys": value} if isinstance(value, str) else value


def jitter(value: object) -> float:
    share = units.percent(value)
    if share > _JITTER_MAX:
        raise ValueError(f"must be at most {_JITTER_MAX:.0%}")
    return share


def missing_share(value: object) -> float:
    share = units.percent(value)
    if not 0 < share <= 1:
        raise ValueError("must be more than 0% and at most 100%")
    return share


def target(value: object) -> float:
    share = units.percent(value)
    if not 0 < share < 1:
        raise ValueError("must be more than 0% and less than 100%")
    return share


def max_age(value: object) -> float:
    seconds = units.duration(value)
    if seconds <= _MAX_AGE_MIN:
        raise ValueError(f"must be longer than {_MAX_AGE_MIN:g}s; for a short fixed interval use every")
    return seconds


Jitter: TypeAlias = Annotated[float, BeforeValidator(jitter)]
MissingShare: TypeAlias = Annotated[float, BeforeValidator(missing_share)]
StateFile: TypeAlias = Annotated[Text, StringConstraints(pattern=r"[^/]$")]
CacheUrl: TypeAlias = Annotated[Url, BeforeValidator(cache_url)]
SourceUrl: TypeAlias = Annotated[Url, BeforeValidator(source_url)]
Brokers: TypeAlias = Annotated[str, BeforeValidator(brokers_url)]
QueueUrl: TypeAlias = Annotated[str, BeforeValidator(queue_url)]
Listen: TypeAlias = Annotated[Address, BeforeValidator(listen_address)]
Target: TypeAlias = Annotated[float, BeforeValidator(target)]
MaxAge: TypeAlias = Annotated[float, BeforeValidator(max_age), Field(le=_YEAR)]
Worth: TypeAlias = Annotated[float, BeforeValidator(units.factor), Field(gt=0, le=_WORTH_MAX)]
Weight: TypeAlias = Annotated[float, BeforeValidator(units.factor), Field(ge=_WEIGHT_MIN, le=_WEIGHT_MAX)]
BacklogAge: TypeAlias = Annotated[float, BeforeValidator(units.duration), Field(ge=1.0, le=_BACKLOG_AGE)]
LeastGain: TypeAlias = Annotated[float, BeforeValidator(units.factor), Field(ge=0, le=_LEAST_GAIN_MAX)]
KeyPattern: TypeAlias = Annotated[InstanceOf[Pattern], BeforeValidator(key_pattern)]
HostPort: TypeAlias = Annotated[TcpAddress, BeforeValidator(host_port)]
