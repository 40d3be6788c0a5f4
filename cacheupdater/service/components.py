"""Builds the components of a service from the configuration: sources, namespaces, loaders, writers, prices.

`Service.run` makes one `Components`, and so does each command that needs a component. Components that must be closed are
pushed onto an exit stack in the order in which they are made. A component that several namespaces share (a database, a
writer) is made once.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from cacheupdater.adapters.fleet_redis import RedisFleet
from cacheupdater.adapters.loader_python import PythonLoader
from cacheupdater.adapters.loader_sql import SqlLoader, SqlSource
from cacheupdater.adapters.loader_sql.encryption import Tls
from cacheupdater.adapters.state_file import StateFile
from cacheupdater.adapters.writer_redis import RedisPauses, writer_for
from cacheupdater.config.queues import MemoryQueueConfig
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.priorities import Priority
from cacheupdater.errors import Misconfigured
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.price import memory
from cacheupdater.price.shell.pricing import Aim, Pricing
from cacheupdater.service.declared_loader import function_of
from cacheupdater_client.protocol import dogpile, dumped
from cacheupdater_client.protocol.encoding import encoder, form_of
from cacheupdater_client.protocol.pickles import CACHELIB, pickler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AsyncExitStack

    from cacheupdater.adapters.writer_redis import ClusterWriter, RedisWriter
    from cacheupdater.config.models import NamespaceSection, SourceSection
    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Loader, Observer, Pauses, Writer
    from cacheupdater_client.protocol.encoding import Encoder
    from cacheupdater_client.protocol.fence import Form


def rate_of(source: SourceSection) -> tuple[float, float]:
    """How much the source may spend a second, and how much it may save up: rows, or milliseconds of database time."""
    rate = source.budget if source.budget is not None else (source.db_time or 0.0) * 1000.0
    return rate, rate * source.burst


def _encoder(namespace: NamespaceSection) -> Encoder:
    value, framework = namespace.value, namespace.framework
    if framework is None:
        return encoder(value.encoding, value.numbers, value.times)
    spelled = framework.serialized
    if framework.kind == "dogpile":
        plain = spelled == "json"
        return dogpile.encoder(
            dumped.jsoner(value.numbers, value.times) if plain else pickler(framework.pickled, integers=False)
        )
    if framework.kind == "cashews" and spelled == "pickle":
        return dumped.without_bytes(pickler(framework.pickled))
    if spelled == "pickle":
        before = CACHELIB if framework.kind == "flask-caching" else b""
        return pickler(framework.pickled, before, integers=framework.kind != "aiocache")
    if spelled == "json":
        return dumped.jsoner(value.numbers, value.times)
    return dumped.text if spelled == "string" else encoder(spelled, value.numbers, value.times)


def _form(namespace: NamespaceSection) -> Form:
    framework = namespace.framework
    if framework is None:
        return form_of(namespace.value.encoding)
    spelled = framework.serialized
    return framework.form or ("pickle" if spelled == "pickle" else form_of(spelled))


class Components:
    """The components of one service."""

    def __init__(self, config: Config, stack: AsyncExitStack) -> None:
        self._config = config
        self._stack = stack
        self._databases: dict[str, SqlSource] = {}
        self._writer: ClusterWriter | RedisWriter | None = None

    def namespaces(self, now: float) -> list[Namespace]:
        """The namespaces of the configuration, as the core sees them. Their buckets start empty at `now`."""
        sources = {name: _source(each, now) for name, each in self._config.sources.items()}
        return [
            Namespace(
                name=each.name,
                pattern=each.pattern,
                source=sources[each.load.source],
                every=each.refresh.every,
                ttl=each.ttl.base,
                fail_safe=each.fail_safe.extend_to if each.fail_safe else 0.0,
                missing_ttl=each.missing.ttl,
                max_backlog=each.max_backlog.keys,
                backlog_age=each.max_backlog.age,
                priority=Priority[each.priority.upper()],
                weight=each.weight,
                quota=Bucket(each.quota.rate, each.quota.saved, now=now) if each.quota else None,
                terms=_terms(each),
            )
            for each in self._config.namespaces.values()
        ]

    def pricing(self, namespaces: Sequence[Namespace], observer: Observer, notices: Notices) -> Pricing:
        """The prices of all sources."""
        aims = {
            name: Aim(each.freshness_target, each.least_gain) for name, each in self._config.sources.items()
        }
        return Pricing(
            namespaces, aims, limits=Limits(), random=random.random, observer=observer, notices=notices
        )

    async def beyond(self, pricing: Pricing, wake_up: Callable[[], None], *, partitions: int) -> None:
        """Connects prices with the state file and the fleet. `wake_up` wakes the partitions when there may be more to spend."""
        config = self._config
        if config.state is not None:
            state = StateFile(config.state, most=memory.SIZE_MAX)
            # the only clock that runs while this process is down
            await pricing.remember(state, time.time, partitions=partitions)  # noqa: TID251  as said
        if config.fleet is not None:
            fleet = RedisFleet(config.cache.reveal(), config.fleet)
            self._stack.push_async_callback(fleet.close)
            # a topic's partitions divide quotas already; an updater with a memory queue owns all partitions
            pricing.share(fleet, wake_up, quotas=isinstance(config.queue, MemoryQueueConfig))

    def recipe(self, name: str) -> Recipe:
        """The recipe by which keys of this namespace become values."""
        namespace = self._config.namespaces[name]
        value, declared = namespace.value, self._config.declared.get(name)
        return Recipe(
            loader=self.loader(namespace),
            writer=self.writer(),
            form=_form(namespace),
            replace=value.foreign == "replace",
            encode=declared.spelling.encode if declared else _encoder(namespace),
            ttl=namespace.ttl.base,
            jitter=namespace.ttl.jitter,
        )

    def writer(self) -> Writer:
        """The writer to Redis behind the fence: to one server, to a cluster, or to the primary that the sentinels name."""
        return self._redis()

    def pauses(self) -> Pauses:
        """Which namespaces are paused, over the writer's connections."""
        return RedisPauses(self._redis())

    def _redis(self) -> ClusterWriter | RedisWriter:
        if self._writer is None:
            self._writer = writer_for(self._config.cache.reveal())
            self._stack.push_async_callback(self._writer.close)
        return self._writer

    def loader(self, namespace: NamespaceSection) -> Loader:
        """The loader of this namespace's rows."""
        load, source = namespace.load, self._config.sources[namespace.load.source]
        if load.python:
            declared = self._config.declared.get(namespace.name)
            python = PythonLoader(
                load.python,
                namespace.pattern,
                deadline=min(source.statement_timeout, declared.timeout_ms / 1000)
                if declared
                else source.statement_timeout,
                threads=source.pool_size,
                function=function_of(declared) if declared else None,
            )
            self._stack.push_async_callback(python.close)
            return python
        database = self.database(source)
        names, columns = namespace.pattern.names, namespace.value.columns
        sql = load.sql or database.select(load.table or "", names, columns, stamp=load.stamp)
        return SqlLoader(database, sql, namespace.pattern, columns=columns, rows=load.rows, stamp=load.stamp)

    def database(self, source: SourceSection) -> SqlSource:
        """The database of this source; all its namespaces share it."""
        database = self._databases.get(source.name)
        if database is None:
            if source.url is None:
                raise Misconfigured(f"sources.{source.name}.url is missing: a SQL statement needs a database")
            database = self._databases[source.name] = SqlSource(
                source.url.reveal(),
                pool_size=source.pool_size,
                statement_timeout=source.statement_timeout,
                tls=Tls(*source.encryption),
            )
            self._stack.push_async_callback(database.close)
        return database


def _source(source: SourceSection, now: float) -> Source:
    bucket = Bucket(*rate_of(source), now=now)
    return Source(source.name, bucket, concurrency=source.pool_size, timed=source.db_time is not None)


def _terms(namespace: NamespaceSection) -> Terms | None:
    refresh, stamp = namespace.refresh, namespace.load.stamp
    if refresh.policy == "fixed":
        return None
    return Terms(refresh.worth, refresh.max_age, stamp.kind if stamp else "")
