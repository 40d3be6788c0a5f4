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
from cacheupdater.adapters.state_file import StateFile
from cacheupdater.adapters.writer_redis import RedisPauses, writer_for
from cacheupdater.config.queues import MemoryQueueConfig
from cacheupdater.core.bucket import Bucket
from cacheupdater.core.budget import Source
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace, Terms
from cacheupdater.core.priorities import Priority
from cacheupdater.encryption import Tls
from cacheupdater.errors import Misconfigured
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.price import memory
from cacheupdater.price.shell.partition_shares import Whole
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


def form_in(namespace: NamespaceSection) -> Form:
    """The form in which the values of this namespace are written, by which the fence recognises them."""
    framework = namespace.framework
    if framework is None:
        return form_of(namespace.value.encoding)
    spelled = framework.serialized
    return framework.form or ("pickle" if spelled == "pickle" else form_of(spelled))


class Components:
    """The components of one configuration."""

    def __init__(self, config: Config, stack: AsyncExitStack, before: Components | None = None) -> None:
        """`before` are the components of the configuration that is used until now. What has not changed is used again, and
        buckets go over with their debts."""
        self.config = config
        self._stack = stack
        self._before = before
        self.databases: dict[str, SqlSource] = {}
        self.recipes: dict[str, Recipe] = {}
        self.by_name: dict[str, Namespace] = {}
        self.mine: set[SqlSource | PythonLoader] = set()
        self.open: dict[SqlSource | PythonLoader, None] = before.open if before else {}
        """What must be closed, of all configurations of this process."""
        self._writer: ClusterWriter | RedisWriter | None = before.redis() if before else None
        self.fleet: RedisFleet | None = before.fleet if before else None
        self.unchanged = _unchanged(before.config, config) if before else frozenset()
        """The namespaces that load and write as before."""
        if before is None:
            stack.push_async_callback(self._close_all)

    def namespaces(self, now: float) -> list[Namespace]:
        """The namespaces of the configuration, as the core sees them. New buckets start empty at `now`."""
        sources = {name: self._source(each, now) for name, each in self.config.sources.items()}
        found = [
            Namespace(
                name=each.name,
                pattern=each.pattern,
                source=sources[each.load.source],
                every=each.refresh.every,
                ttl=each.ttl.base,
                fail_safe=each.fail_safe.extend_to if each.fail_safe else 0.0,
                missing_ttl=each.missing.ttl,
                missing_share=each.missing.share,
                max_backlog=each.max_backlog.keys,
                backlog_age=each.max_backlog.age,
                priority=Priority[each.priority.upper()],
                weight=each.weight,
                quota=self._quota(each, now),
                terms=_terms(each),
            )
            for each in self.config.namespaces.values()
        ]
        self.by_name = {each.name: each for each in found}
        for each in found:
            known = self._known(each.name)
            if known is not None:
                each.absent_bucket.succeed(known.absent_bucket)
            if known is not None and known.source.timed == each.source.timed:
                each.cost.per_row = known.cost.per_row
        return found

    def wholes(self) -> dict[Bucket, Whole]:
        """The whole rate of each bucket of `namespaces`: one that was used before holds a part of the whole before."""
        found: dict[Bucket, Whole] = {}
        for name, namespace in self.by_name.items():
            section = self.config.namespaces[name]
            found[namespace.source.bucket] = Whole(*rate_of(self.config.sources[namespace.source.name]))
            if namespace.quota is not None and section.quota is not None:
                found[namespace.quota] = Whole(section.quota.rate, section.quota.saved)
        return found

    def pricing(self, namespaces: Sequence[Namespace], observer: Observer, notices: Notices) -> Pricing:
        """The prices of all sources."""
        aims = {
            name: Aim(each.freshness_target, each.least_gain) for name, each in self.config.sources.items()
        }
        return Pricing(
            namespaces, aims, limits=Limits(), random=random.random, observer=observer, notices=notices
        )

    async def beyond(self, pricing: Pricing, wake_up: Callable[[], None], *, partitions: int) -> None:
        """Connects prices with the state file and the fleet. `wake_up` wakes the partitions when there may be more to spend."""
        config = self.config
        if config.state is not None:
            state = StateFile(config.state, most=memory.SIZE_MAX)
            # the only clock that runs while this process is down
            await pricing.remember(state, time.time, partitions=partitions)  # noqa: TID251  as said
        self.share(pricing, wake_up)

    def share(self, pricing: Pricing, wake_up: Callable[[], None]) -> None:
        """Lets the fleet decide what may be spent, if there is a fleet."""
        config = self.config
        if config.fleet is None:
            return
        if self.fleet is None:
            self.fleet = RedisFleet(config.cache.reveal(), config.fleet)
            self._stack.push_async_callback(self.fleet.close)
        # a topic's partitions divide quotas already; an updater with a memory queue owns all partitions
        pricing.share(self.fleet, wake_up, quotas=isinstance(config.queue, MemoryQueueConfig))

    async def close_others(self) -> None:
        """Closes what only the configuration before has used."""
        self._before = None
        await self._close([each for each in self.open if each not in self.mine])

    async def give_up(self) -> None:
        """Closes what only this configuration would have used: it is not going to be used."""
        kept = self._before.mine if self._before else set()
        await self._close([each for each in self.open if each not in kept])

    async def _close_all(self) -> None:
        await self._close(list(self.open))

    async def _close(self, closing: Sequence[SqlSource | PythonLoader]) -> None:
        for each in reversed(closing):
            del self.open[each]
            await each.close()

    def _keep(self, opened: SqlSource | PythonLoader) -> None:
        self.mine.add(opened)
        self.open[opened] = None

    def recipe(self, name: str) -> Recipe:
        """The recipe by which keys of this namespace become values."""
        if self._before and name in self.unchanged:
            recipe = self._before.recipes[name]
            if isinstance(recipe.loader, PythonLoader):
                self._keep(recipe.loader)
            else:
                self.database(self.config.sources[self.config.namespaces[name].load.source])
        else:
            recipe = self._recipe(name)
        self.recipes[name] = recipe
        return recipe

    def _recipe(self, name: str) -> Recipe:
        namespace = self.config.namespaces[name]
        value, declared = namespace.value, self.config.declared.get(name)
        return Recipe(
            loader=self.loader(namespace),
            writer=self.writer(),
            form=form_in(namespace),
            replace=value.foreign == "replace",
            declared=declared is not None,
            encode=declared.spelling.encode if declared else _encoder(namespace),
            ttl=namespace.ttl.base,
            jitter=namespace.ttl.jitter,
        )

    def writer(self) -> Writer:
        """The writer to Redis behind the fence: to one server, to a cluster, or to the primary that the sentinels name."""
        return self.redis()

    def pauses(self) -> Pauses:
        """Which namespaces are paused, over the writer's connections."""
        return RedisPauses(self.redis())

    def redis(self) -> ClusterWriter | RedisWriter:
        """The writer, by its own type."""
        if self._writer is None:
            self._writer = writer_for(self.config.cache.reveal())
            self._stack.push_async_callback(self._writer.close)
        return self._writer

    def loader(self, namespace: NamespaceSection) -> Loader:
        """The loader of this namespace's rows."""
        load, source = namespace.load, self.config.sources[namespace.load.source]
        if load.python:
            declared = self.config.declared.get(namespace.name)
            python = PythonLoader(
                load.python,
                namespace.pattern,
                deadline=min(source.statement_timeout, declared.timeout_ms / 1000)
                if declared
                else source.statement_timeout,
                threads=source.pool_size,
                function=function_of(declared) if declared else None,
            )
            self._keep(python)
            return python
        database = self.database(source)
        names, columns = namespace.pattern.names, namespace.value.columns
        sql = load.sql or database.select(load.table or "", names, columns, stamp=load.stamp)
        return SqlLoader(database, sql, namespace.pattern, columns=columns, rows=load.rows, stamp=load.stamp)

    def database(self, source: SourceSection) -> SqlSource:
        """The database of this source; all its namespaces share it."""
        database = self.databases.get(source.name) or self._used_before(source)
        if database is None:
            if source.url is None:
                raise Misconfigured(f"sources.{source.name}.url is missing: a SQL statement needs a database")
            database = SqlSource(
                source.url.reveal(),
                pool_size=source.pool_size,
                statement_timeout=source.statement_timeout,
                tls=Tls(*source.encryption),
            )
        self.databases[source.name] = database
        self._keep(database)
        return database

    def _used_before(self, source: SourceSection) -> SqlSource | None:
        """The database that is open already, if it is still reached in the same way."""
        if self._before is None or not self._is_reached_as_before(source):
            return None
        return self._before.databases.get(source.name)

    def _is_reached_as_before(self, source: SourceSection) -> bool:
        known = self._before.config.sources.get(source.name) if self._before else None
        return known is not None and _reached(known) == _reached(source)

    def _known(self, name: str) -> Namespace | None:
        """The namespace of this name before."""
        return self._before.by_name.get(name) if self._before else None

    def _source(self, source: SourceSection, now: float) -> Source:
        """A source with the bucket of the source before: a reload grants no burst, and does not ask a source that is down."""
        timed = source.db_time is not None
        before = self._before.by_name.values() if self._before else ()
        known = next((each.source for each in before if each.source.name == source.name), None)
        if known is None or known.timed != timed:
            bucket = Bucket(*rate_of(source), now=now)
            return Source(source.name, bucket, concurrency=source.pool_size, timed=timed)
        made = Source(source.name, known.bucket, concurrency=source.pool_size, timed=timed)
        if self._is_reached_as_before(source):
            made.breaker = known.breaker
        return made

    def _quota(self, namespace: NamespaceSection, now: float) -> Bucket | None:
        if namespace.quota is None:
            return None
        known = self._known(namespace.name)
        if known is not None and known.quota is not None:
            return known.quota
        return Bucket(namespace.quota.rate, namespace.quota.saved, now=now)


def _reached(source: SourceSection) -> tuple[object, ...]:
    """How the source is reached. A budget is none of the connections' business."""
    url = source.url.reveal() if source.url else None
    return url, source.pool_size, source.statement_timeout, source.encryption


def _unchanged(before: Config, config: Config) -> frozenset[str]:
    """The namespaces that load and write as before. What an application declares is made anew."""
    return frozenset(
        name
        for name, each in config.namespaces.items()
        if name not in config.declared
        and before.namespaces.get(name) == each
        and _reached(before.sources[each.load.source]) == _reached(config.sources[each.load.source])
    )


def _terms(namespace: NamespaceSection) -> Terms | None:
    refresh, stamp = namespace.refresh, namespace.load.stamp
    if refresh.policy == "fixed":
        return None
    return Terms(refresh.worth, refresh.max_age, stamp.kind if stamp else "")
