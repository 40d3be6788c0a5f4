"""The composition root: the only place that knows the configuration, the adapters and the pipeline at once.

`cli` builds one `Service` per process and runs it until it must stop. `run` makes everything that belongs to an event loop,
and at its end closes all of it in the order in which hints flow. The door closes first, so that nothing new arrives. Then the
partitions finish as much as they can within the drain timeout. The queue and the connections close last.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from cacheupdater import __version__
from cacheupdater.adapters.admin_http import AdminServer
from cacheupdater.adapters.observer_prometheus import PrometheusObserver, declared
from cacheupdater.config.queues import MemoryQueueConfig
from cacheupdater.core.events import EVENTS
from cacheupdater.errors import CacheUpdaterError, first_error
from cacheupdater.pipeline.losses import Losses
from cacheupdater.pipeline.notices import Notices
from cacheupdater.price.report import plain
from cacheupdater.service.allowance import allowed
from cacheupdater.service.doors import door_for
from cacheupdater.service.feeding import Feeding
from cacheupdater.service.generation import Generation
from cacheupdater.service.reloading import Reloading
from cacheupdater.service.turnover import Turnover

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cacheupdater.config.settings import Config
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.redis_clock import RedisClock
    from cacheupdater.ports import Writer
    from cacheupdater.service.door import Door
    from cacheupdater.service.reloading import Reread

T = TypeVar("T")

log = logging.getLogger(__name__)

DRAIN = 10.0  # seconds from a stop to the end, even if something hangs; Kubernetes waits 30 by default
PROBE_EVERY = 5.0  # seconds between two probes of Redis: for /readyz, and for the time by Redis' clock
WATCH_EVERY = 1.0  # seconds between two looks at the troubles that stand


class Service:
    """The updater of one process."""

    def __init__(self, config: Config, reread: Reread | None = None, *, processes: int = 1) -> None:
        """`reread` reads the configuration again, for reloads. `processes` is how many processes share the memory."""
        self._config = config
        self._processes = processes
        queue = config.queue
        self._metrics = PrometheusObserver(
            version=__version__,
            namespaces=config.namespaces,
            # the number of a topic's partitions is known only later
            partitions=queue.partitions if isinstance(queue, MemoryQueueConfig) else 0,
            sources=config.sources,
            feeds=config.fed,
            declared=declared.BOTH if config.forwards else declared.DECLARED,
        )
        self._notices = Notices(lambda: asyncio.get_running_loop().time())
        self._observer = Losses(self._metrics, self._notices)
        self._reloading = Reloading(reread, self._observer, self._notices)
        self._cache_answers = False
        self._turnover: Turnover | None = None
        self._feeding: Feeding | None = None

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Runs until `stop` is set and everything is drained. Calls `ready` once, with the addresses that accept hints."""
        async with AsyncExitStack() as stack:
            door = door_for(self._config, observer=self._observer, notices=self._notices)
            first = Generation.first(
                self._config, stack, door.queue, observer=self._observer, notices=self._notices
            )
            door.declare(first.prefixes)
            stack.push_async_callback(door.queue.close)
            pricing = first.pricing
            if not isinstance(self._config.queue, MemoryQueueConfig):
                pricing.divide(time.time)  # noqa: TID251  the one clock that all owners have
                pricing.limits = replace(pricing.limits, senders_wait=False)
            feeding = self._feeding = Feeding(door.queue, observer=self._observer, notices=self._notices)
            turnover = self._turnover = Turnover(
                first, door, stack=stack, observer=self._metrics, feeding=feeding
            )
            await self._answer(stack, lambda: self._conditions(door, stop), turnover)
            if await _unless(stop, self._found(door, turnover)):
                pricing.limits = self._fitting(pricing.limits, door.partitions)
                await first.components.beyond(
                    pricing, turnover.supervisor.wake_all, partitions=door.partitions
                )
                await self._work(door, turnover, feeding=feeding, ready=ready, stop=stop)
        return 0

    async def _found(self, door: Door, turnover: Turnover) -> int:
        """Waits for the queue. Meanwhile `/readyz` and the metrics name what is missing, and nothing else."""
        around = turnover.now.around
        works = self._probe(around.writer, around.redis_clock), self._watch(door, turnover)
        beside = [asyncio.ensure_future(each) for each in works]
        try:
            return await door.find()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def _fitting(self, usual: Limits, partitions: int) -> Limits:
        """The limits of tables that fit into this container's memory."""
        memory = allowed().memory
        limits = usual.within(memory, partitions=partitions, processes=self._processes)
        if memory is not None and limits != usual:
            log.info(
                "the container has %d MiB of memory: each partition may learn about %d keys, not %d; partitions: %d",
                memory >> 20,
                limits.learned,
                usual.learned,
                partitions,
            )
        return limits

    def reload(self) -> None:
        """Take over the current configuration, as soon as hints are accepted."""
        self._reloading.ask()

    async def _answer(
        self, stack: AsyncExitStack, conditions: Callable[[], dict[str, bool]], turnover: Turnover
    ) -> None:
        """Serve /metrics and the other admin pages, from before the queue is found until everything is drained."""
        if self._config.admin is None:
            return
        server = AdminServer(
            self._config.admin.host_port,
            metrics=self._metrics.expose,
            ready=conditions,
            warnings=self._notices.plain,
            pages={"/freshness": self._freshness},
            keyed=turnover.pages(self._config.admin_token, self._reloading.outcome),
        )
        await server.start()
        stack.push_async_callback(server.close)

    async def _work(
        self,
        door: Door,
        turnover: Turnover,
        *,
        feeding: Feeding,
        ready: Callable[[str], None],
        stop: asyncio.Event,
    ) -> None:
        """Accept hints until the stop, then finish the accepted ones."""
        around, supervisor = turnover.now.around, turnover.supervisor
        pauses = turnover.now.components.pauses()
        await around.paused.look(pauses, supervisor.partitions)  # a pause holds from the first hint on
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(supervisor.run())
                group.create_task(door.run())
                works = (
                    self._probe(around.writer, around.redis_clock),
                    self._watch(door, turnover),
                    around.vitals.run(around.writer),
                    around.paused.follow(pauses, supervisor.partitions),
                    turnover.price(),
                    self._reloading.run(turnover),
                )
                beside = [group.create_task(each) for each in works]
                fed = group.create_task(feeding.run(lambda: turnover.now, door.partitions))
                try:
                    where = await _unless(stop, door.open())
                    if where is not None:
                        ready(where)
                        await stop.wait()
                        log.info("stopping: accepted hints have %g s to be finished", DRAIN)
                finally:
                    deadline = asyncio.get_running_loop().time() + DRAIN
                    fed.cancel()
                    await asyncio.gather(fed, return_exceptions=True)
                    await door.close()
                await door.finish(deadline)
                await supervisor.drain(max(0.0, deadline - asyncio.get_running_loop().time()))
                for task in beside:
                    task.cancel()
                await turnover.now.pricing.end()
                await door.queue.close()
        except BaseExceptionGroup as group:
            raise first_error(group) from group

    async def _probe(self, writer: Writer, redis_clock: RedisClock) -> None:
        """Probes Redis for /readyz, and asks for its time. Refreshes do not depend on the result."""
        clock = asyncio.get_running_loop().time
        while True:
            sent = clock()
            try:
                redis_clock.told(await writer.token(), sent, clock())
                self._cache_answers = True
                self._notices.over("redis_down", "")
            except CacheUpdaterError as e:
                self._cache_answers = False
                self._notices.trouble("redis_down", "", f"Redis does not answer: {e}")
            await asyncio.sleep(PROBE_EVERY)

    async def _watch(self, door: Door, turnover: Turnover) -> None:
        """Ends the troubles that have not come back, and shows the standing ones as a metric."""
        clock = asyncio.get_running_loop().time
        sources: dict[str, float] = {}
        while True:
            sources = {name: sources.get(name, clock()) for name in turnover.config.sources}
            await asyncio.sleep(WATCH_EVERY)
            around = turnover.now.around
            around.vitals.tick(clock(), sources=sources, clients=door.clients if door.open_now else None)
            around.judging.tick(clock())
            if around.sieve:
                around.sieve.tell(clock())
            self._observer.tell(clock())
            self._notices.tick()
            standing = Counter[str](each.event for each in self._notices.standing())
            for event in EVENTS:
                self._observer.level("troubles", standing[event], label=event)

    async def _freshness(self) -> dict[str, object]:
        report = plain(await self._turnover.now.pricing.freshness.report() if self._turnover else ())
        now = asyncio.get_running_loop().time()
        vitals = self._turnover.now.around.vitals if self._turnover else None
        return {
            **report,
            "warnings": self._notices.plain(),
            "lately": vitals.plain(now) if vitals else {},
            "read_ages": vitals.read_ages(now) if vitals else [],
            "feeds": self._feeding.plain(now) if self._feeding else [],
        }

    def _conditions(self, door: Door, stop: asyncio.Event) -> dict[str, bool]:
        return {
            **door.conditions,
            "cache": self._cache_answers,
            "accepting": not stop.is_set(),
        }


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, T]) -> T | None:
    """The result of the work. If the stop comes first, the work is cancelled and the result is None."""
    doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([doing, stopped], return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        stopped.cancel()
        await asyncio.gather(doing, stopped, return_exceptions=True)
