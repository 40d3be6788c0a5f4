"""An updater goes over from one configuration to the next while it runs: a hand-over of all partitions to itself.

The service makes one `Turnover`. It has the present `Generation` and the supervisor of the partitions. A reload prepares the
next generation's loaders first, so that a mistake there changes nothing. Then it asks the queue to take all partitions away and
give them back. The generations change at the moment when the last partition is handed over: nothing is ours then, so no key is
served by two configurations. Hints that were not finished come again from the queue, and the next generation serves them.
A reload that only changes what sources may spend does without all that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cacheupdater.adapters.admin_http import Keyed
from cacheupdater.adapters.observer_prometheus import declared
from cacheupdater.core.events import of_quota
from cacheupdater.pipeline.supervisor import Supervisor
from cacheupdater.service.components import rate_of
from cacheupdater.service.configuration import RELOAD, SAME, SETTINGS, ConfigurationPages
from cacheupdater.service.explain import Explainer
from cacheupdater.service.quarantine import FORGET, LIST, RETRY, QuarantinePages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from contextlib import AsyncExitStack

    from cacheupdater.adapters.observer_prometheus import PrometheusObserver
    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.partition import Partition
    from cacheupdater.ports import Gained
    from cacheupdater.service.components import Components
    from cacheupdater.service.difference import Difference
    from cacheupdater.service.door import Door
    from cacheupdater.service.feeding import Feeding
    from cacheupdater.service.generation import Generation

log = logging.getLogger(__name__)


class Turnover:
    """The generations of one process, one after the other."""

    def __init__(
        self,
        first: Generation,
        door: Door,
        *,
        stack: AsyncExitStack,
        observer: PrometheusObserver,
        feeding: Feeding | None = None,
    ) -> None:
        """`feeding` reads the feeds of the present generation, if this process reads any."""
        self.now = first
        self.config: Config = first.config
        self.supervisor = Supervisor(door.queue, self._make, owns=self._own)
        self._door = door
        self._stack = stack
        self._observer = observer
        self._feeding = feeding
        self._prepared: Components | None = None  # of the generation to which the partitions go
        self._turned = asyncio.Event()
        self._pricing: asyncio.Future[None] | None = None

    async def price(self) -> None:
        """Runs the prices of the present generation. Until cancelled."""
        while True:
            self._pricing = asyncio.ensure_future(self.now.pricing.run())
            try:
                await asyncio.wait([self._pricing])
            finally:
                self._pricing.cancel()
                await asyncio.gather(self._pricing, return_exceptions=True)
            if not self._pricing.cancelled():  # else the next generation's follow
                self._pricing.result()

    async def go_over(self, config: Config, changes: Difference) -> None:
        """As `reloading.Running`."""
        if changes.spending:
            self._spend(config, changes)
            self.config = config
            return
        before = self.now
        prepared = await before.prepared(config, self._stack)
        self._turned.clear()
        self._prepared = prepared
        if self.supervisor.partitions:
            self._door.queue.reassign(list(self.supervisor.partitions))
            await self._turned.wait()  # at the latest when a rebalance takes the partitions
        else:
            self._turn_over()
        self._door.declare(self.now.prefixes)
        await before.pricing.leave(but=self.now.pricing)
        await self.now.components.close_others()

    def _spend(self, config: Config, changes: Difference) -> None:
        """Other rates, and nothing else."""
        now, pricing = asyncio.get_running_loop().time(), self.now.pricing
        for name in (each.partition(".")[2] for each in changes.changed):
            source = config.sources[name]
            pricing.change(name, *rate_of(source), now=now)
            pricing.require(name, source.least_gain)
            log.info("source %s may spend %g a second from now on", name, rate_of(source)[0])

    def _make(self, gained: Gained, wake_all: Callable[[], None]) -> Partition:
        return self.now.make(gained, wake_all)

    def _own(self, partitions: Collection[int]) -> None:
        if self._prepared is not None and not partitions:
            self._turn_over()  # the buckets stay open, for the partitions come back
            return
        self.now.pricing.own(partitions, of=self._door.partitions)

    def _turn_over(self) -> None:
        """The prepared generation is the present one from now on. Nothing is ours at this moment."""
        assert self._prepared is not None
        prepared, self._prepared = self._prepared, None
        before, self.now = self.now, self.now.next(prepared)
        self.config = self.now.config
        if (
            self._pricing is not None
        ):  # a grant of the fleet that is under way must not open a bucket any more
            self._pricing.cancel()
        self.now.components.share(self.now.pricing, self.supervisor.wake_all)
        if self.config.forwards:  # perhaps for the first time, for a feed
            self._observer.add(declared.BOTH)
        self._observer.show(self.config.namespaces, self.config.sources, self.config.fed)
        was, now, notices = before.config, self.config, self.now.around.notices
        gone = ({*was.sources} - {*now.sources}) | ({*was.namespaces} - {*now.namespaces})
        notices.all_over(gone | (_quotas(was) - _quotas(now)))
        for name in {*now.namespaces} - prepared.unchanged:  # they are judged anew
            notices.over("foreign", name)
            notices.over("form_changed", name)
        if self._feeding is not None:
            self._feeding.turn_over()
        self._turned.set()

    def pages(self, token: str | None, reloaded: Callable[[], Awaitable[Difference]]) -> Keyed:
        """The pages about keys and the configuration. Each answers for the present generation. `reloaded` reads the file."""
        quarantine = self._quarantine
        configuration = ConfigurationPages(lambda: self.config, reloaded)
        return Keyed(
            {"/explain": lambda key: self._explainer().page(key)},
            token,
            queried={
                LIST: lambda query: quarantine().listed(query),
                SETTINGS: configuration.settings,
                SAME: configuration.same,
            },
            changes={
                RELOAD: configuration.reload,
                RETRY: lambda query: quarantine().retry(query),
                FORGET: lambda query: quarantine().forget(query),
            },
        )

    def _explainer(self) -> Explainer:
        now = asyncio.get_running_loop().time()
        return Explainer(
            self._door,
            self.now.around,
            self.now.pricing,
            partitions=self.supervisor.partitions,
            feeds=self._feeding.plain(now) if self._feeding else (),
            sections=self.config.namespaces,
        )

    def _quarantine(self) -> QuarantinePages:
        return QuarantinePages(self.now.around, partitions=self.supervisor.partitions)


def _quotas(config: Config) -> set[str]:
    """The subjects of troubles about quotas."""
    return {of_quota(name) for name, namespace in config.namespaces.items() if namespace.quota is not None}
