"""The composition root: the only place that knows configuration, adapters and pipeline at once.

`cli` builds one `Service` per process and runs it until it shall stop. Everything that belongs to an event loop is
made in `run`; afterwards all of it is closed, in the order in which hints flow: listeners first, so that nothing
new arrives, then the partitions, which finish what they can within the drain timeout, then queue and connections.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from cacheupdater import __version__
from cacheupdater.adapters.admin_http import AdminServer
from cacheupdater.adapters.listener_memory import MemoryListener
from cacheupdater.adapters.listener_stream import StreamListener
from cacheupdater.adapters.loader_python import PythonLoader
from cacheupdater.adapters.loader_sql import SqlLoader, SqlSource
from cacheupdater.adapters.observer_prometheus import PrometheusObserver
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.adapters.writer_redis import RedisWriter
from cacheupdater.config.addresses import MemoryAddress
from cacheupdater.config.settings import PythonLoad, SqlLoad
from cacheupdater.core.budget import Bucket, Source
from cacheupdater.core.encoding import encoder
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.limits import Limits
from cacheupdater.core.namespace import Namespace
from cacheupdater.core.policy import Fixed
from cacheupdater.errors import CacheUpdaterError, Misconfigured
from cacheupdater.pipeline.partition import Partition, Surroundings
from cacheupdater.pipeline.recipe import Recipe
from cacheupdater.pipeline.supervisor import Supervisor
from cacheupdater_client import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.config.settings import Config, NamespaceConfig, SourceConfig
    from cacheupdater.ports import Gained, Loader, Writer

log = logging.getLogger(__name__)

DRAIN = 10.0  # seconds from a stop to the end, whatever hangs; Kubernetes waits 30 by default
PROBE_EVERY = 5.0  # seconds between two looks at Redis, for /readyz alone


class Service:
    """The updater of one process."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._observer = PrometheusObserver(
            version=__version__, namespaces=config.namespaces, partitions=config.queue.partitions
        )
        self._databases: dict[str, SqlSource] = {}
        self._writers: dict[bool, RedisWriter] = {}  # by whether a value of another type gives way
        self._cache_answers = False

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Until `stop` is set and everything is drained; `ready` is told once where hints are accepted."""
        config = self._config
        async with AsyncExitStack() as stack:
            namespaces = self._namespaces()
            keyspace = Keyspace([(each.pattern, each) for each in namespaces])
            recipes = {each: self._recipe(config.namespaces[each.name], stack) for each in namespaces}
            queue = MemoryQueue(config.queue.partitions)
            around = Surroundings(
                queue, recipes, self._writer(replace=False, stack=stack), self._observer, random.random
            )
            supervisor = Supervisor(queue, _maker(keyspace, around))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(supervisor.run())
                    probing = group.create_task(self._probe(around.writer))
                    await self._serve(queue, keyspace, supervisor, ready=ready, stop=stop)
                    probing.cancel()
                    await queue.close()
            except BaseExceptionGroup as group:
                raise _first(group) from group
        return 0

    async def _serve(
        self,
        queue: MemoryQueue,
        keyspace: Keyspace[Namespace],
        supervisor: Supervisor,
        *,
        ready: Callable[[str], None],
        stop: asyncio.Event,
    ) -> None:
        """Accept hints until the stop, then finish them."""
        config, observer = self._config, self._observer
        hello = wire.Hello(config.queue.partitions, keyspace.prefixes)
        streams = StreamListener(queue, hello, observer=observer)
        mailboxes = [str(each) for each in config.listen if isinstance(each, MemoryAddress)]
        boxes = [(MemoryListener(queue.put, hello, observer=observer), address) for address in mailboxes]
        async with AsyncExitStack() as admin:
            if config.admin is not None:
                server = AdminServer(
                    config.admin.host_port,
                    metrics=observer.expose,
                    ready=lambda: self._conditions(supervisor, stop),
                )
                await server.start()
                admin.push_async_callback(server.close)
            try:
                await streams.start(
                    [str(each) for each in config.listen if not isinstance(each, MemoryAddress)]
                )
                for box, address in boxes:
                    await box.start(address)
                ready(" ".join([*streams.addresses, *mailboxes]))
                await stop.wait()
            finally:
                await streams.close()
                for box, _ in boxes:
                    await box.close()
            await self._drain(queue, supervisor)

    async def _drain(self, queue: MemoryQueue, supervisor: Supervisor) -> None:
        """What was accepted is finished, as far as the drain timeout lets it."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + DRAIN
        partitions = range(self._config.queue.partitions)
        while any(map(queue.backlog, partitions)) and clock() < deadline:  # noqa: ASYNC110  no event says "all done"
            await asyncio.sleep(0.02)
        left = sum(map(queue.backlog, partitions))
        if left:
            log.warning("%d packs were not finished within %g s and are given up", left, DRAIN)
        await supervisor.drain(max(0.0, deadline - clock()))

    async def _probe(self, writer: Writer) -> None:
        """Whether Redis answers, for /readyz; the refreshes find out by themselves."""
        while True:
            try:
                await writer.token()
                self._cache_answers = True
            except CacheUpdaterError as e:
                if self._cache_answers:
                    log.warning("Redis does not answer: %s", e)
                self._cache_answers = False
            await asyncio.sleep(PROBE_EVERY)

    def _conditions(self, supervisor: Supervisor, stop: asyncio.Event) -> dict[str, bool]:
        return {
            "assigned": bool(supervisor.partitions),
            "cache": self._cache_answers,
            "accepting": not stop.is_set(),
        }

    # --- building ---------------------------------------------------------------------------------------

    def _namespaces(self) -> list[Namespace]:
        """The core's view of the configuration. Buckets start empty, now."""
        now = asyncio.get_running_loop().time()
        sources = {
            name: Source(name, Bucket(each.budget, each.budget, now=now), concurrency=each.pool_size)
            for name, each in self._config.sources.items()
        }
        return [
            Namespace(
                name=each.name,
                pattern=each.pattern,
                source=sources[each.load.source],
                every=each.every,
                missing_ttl=each.missing_ttl,
                max_backlog=each.max_backlog,
                quota=Bucket(each.quota.rate, each.quota.burst, now=now) if each.quota else None,
            )
            for each in self._config.namespaces.values()
        ]

    def _recipe(self, namespace: NamespaceConfig, stack: AsyncExitStack) -> Recipe:
        return Recipe(
            loader=self._loader(namespace, stack),
            writer=self._writer(replace=namespace.wrong_type == "replace", stack=stack),
            encode=encoder(namespace.encoding),
            ttl=namespace.ttl,
            jitter=namespace.ttl_jitter,
        )

    def _writer(self, *, replace: bool, stack: AsyncExitStack) -> RedisWriter:
        writer = self._writers.get(replace)
        if writer is None:
            writer = self._writers[replace] = RedisWriter(self._config.cache.reveal(), replace=replace)
            stack.push_async_callback(writer.close)
        return writer

    def _loader(self, namespace: NamespaceConfig, stack: AsyncExitStack) -> Loader:
        load, source = namespace.load, self._config.sources[namespace.load.source]
        if isinstance(load, PythonLoad):
            python = PythonLoader(
                load.python,
                namespace.pattern,
                deadline=source.statement_timeout,
                threads=source.pool_size,
            )
            stack.push_async_callback(python.close)
            return python
        database = self._database(source, stack)
        names, columns = namespace.pattern.names, namespace.columns
        if isinstance(load, SqlLoad):
            return SqlLoader(database, load.sql, namespace.pattern, columns=columns, rows=load.rows)
        return SqlLoader(
            database, database.select(load.table, names, columns), namespace.pattern, columns=columns
        )

    def _database(self, source: SourceConfig, stack: AsyncExitStack) -> SqlSource:
        database = self._databases.get(source.name)
        if database is None:
            if source.url is None:
                raise Misconfigured(f"sources.{source.name}.url is missing: a SQL statement needs a database")
            database = self._databases[source.name] = SqlSource(
                source.url.reveal(), pool_size=source.pool_size, statement_timeout=source.statement_timeout
            )
            stack.push_async_callback(database.close)
        return database


def _first(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _maker(
    keyspace: Keyspace[Namespace], around: Surroundings
) -> Callable[[Gained, Callable[[], None]], Partition]:
    """How a gained partition begins: with an engine that knows nothing yet."""

    def make(gained: Gained, stir_all: Callable[[], None]) -> Partition:
        engine = Engine(keyspace, Fixed(), limits=Limits(), random=around.random, offset=gained.offset)
        return Partition(gained, engine, around=around, stir_all=stir_all)

    return make
