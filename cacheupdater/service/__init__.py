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
from cacheupdater.adapters.observer_prometheus import PrometheusObserver
from cacheupdater.adapters.queue_memory import MemoryQueue
from cacheupdater.config.addresses import MemoryAddress
from cacheupdater.core.engine import Engine
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.core.price.report import plain
from cacheupdater.errors import CacheUpdaterError
from cacheupdater.pipeline.partition import Partition, Surroundings
from cacheupdater.pipeline.supervisor import Supervisor
from cacheupdater.service.parts import Parts, rate_of
from cacheupdater_client import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from cacheupdater.config.settings import Config
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.pipeline.pricing import Pricing
    from cacheupdater.ports import Gained, Writer

log = logging.getLogger(__name__)

DRAIN = 10.0  # seconds from a stop to the end, whatever hangs; Kubernetes waits 30 by default
PROBE_EVERY = 5.0  # seconds between two looks at Redis, for /readyz alone


class Service:
    """The updater of one process."""

    def __init__(self, config: Config, reread: Callable[[], Config] | None = None) -> None:
        """`reread` gives the configuration as it stands by now, for `reload`."""
        self._config = config
        self._reread = reread
        self._observer = PrometheusObserver(
            version=__version__,
            namespaces=config.namespaces,
            partitions=config.queue.partitions,
            sources=config.sources,
        )
        self._pricing: Pricing | None = None
        self._cache_answers = False

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Until `stop` is set and everything is drained; `ready` is told once where hints are accepted."""
        config = self._config
        async with AsyncExitStack() as stack:
            parts = Parts(config, stack)
            namespaces = parts.namespaces(asyncio.get_running_loop().time())
            keyspace = Keyspace([(each.pattern, each) for each in namespaces])
            recipes = {each: parts.recipe(each.name) for each in namespaces}
            queue = MemoryQueue(config.queue.partitions)
            around = Surroundings(queue, recipes, parts.writer(), self._observer, random.random)
            pricing = self._pricing = parts.pricing(namespaces, self._observer)
            supervisor = Supervisor(queue, _maker(keyspace, around, pricing))
            await parts.beyond(pricing, supervisor.stir_all)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(supervisor.run())
                    beside = [group.create_task(each) for each in (self._probe(around.writer), pricing.run())]
                    await self._serve(queue, keyspace, supervisor, ready=ready, stop=stop)
                    for task in beside:
                        task.cancel()
                    await pricing.end()
                    await queue.close()
            except BaseExceptionGroup as group:
                raise _first(group) from group
        return 0

    def reload(self) -> None:
        """Take over the budgets that the configuration names by now; everything else waits for the next start."""
        if self._reread is None or self._pricing is None:
            return
        try:
            config = self._reread()
        except CacheUpdaterError as e:
            log.error("the configuration was not read again, the budgets stay what they are:\n%s", e)  # noqa: TRY400  the message is the news
            return
        for name, source in config.sources.items():
            known = self._config.sources.get(name)
            if known is not None and (known.budget is None) == (source.budget is None):
                self._pricing.change(name, *rate_of(source), now=asyncio.get_running_loop().time())
                log.info("source %s may spend %g a second from now on", name, rate_of(source)[0])
            else:
                log.warning("source %s is new, or is paid in another way: it waits for the next start", name)

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
                    pages={"/freshness": self._freshness},
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

    async def _freshness(self) -> dict[str, object]:
        return plain(await self._pricing.freshness.report() if self._pricing else ())

    def _conditions(self, supervisor: Supervisor, stop: asyncio.Event) -> dict[str, bool]:
        return {
            "assigned": bool(supervisor.partitions),
            "cache": self._cache_answers,
            "accepting": not stop.is_set(),
        }


def _first(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _maker(
    keyspace: Keyspace[Namespace], around: Surroundings, pricing: Pricing
) -> Callable[[Gained, Callable[[], None]], Partition]:
    """How a gained partition begins: with an engine that knows what was learned before, and nothing else."""

    def make(gained: Gained, stir_all: Callable[[], None]) -> Partition:
        policy = pricing.policy(keyspace, gained.partition, asyncio.get_running_loop().time())
        engine = Engine(keyspace, policy, limits=pricing.limits, random=around.random, offset=gained.offset)
        return Partition(gained, engine, around=around, stir_all=stir_all)

    return make
