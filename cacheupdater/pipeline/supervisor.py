"""Follows the ownership of partitions: a gained one is run, a lost one is handed over before the queue goes on.

The service runs one per process. When a partition's task fails, the process must end: a partition that stands
still while its process looks healthy is the worst of all outcomes, so the error goes up.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from cacheupdater.pipeline.partition import Partition
    from cacheupdater.ports import Gained, Queue

log = logging.getLogger(__name__)

HAND_OVER = 5.0  # seconds for a partition that goes to another owner: well within a Kafka rebalance
ENDING = 1.0  # seconds for its tasks to end once they are cancelled; a loader that resists must not hold up the others


class Supervisor:
    """All partitions that this process owns."""

    def __init__(
        self,
        queue: Queue,
        make: Callable[[Gained, Callable[[], None]], Partition],
        *,
        owns: Callable[[Collection[int]], None] = lambda _: None,
    ) -> None:
        """`make(gained, stir_all)` builds a partition with a fresh engine. `owns` is told which ones are ours: after a
        loss before anybody else may have them, after a gain before the first hint is read."""
        self.partitions: dict[int, Partition] = {}
        self._queue = queue
        self._make = make
        self._owns = owns
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving: dict[int, asyncio.Event] = {}
        self._draining = False

    async def run(self) -> None:
        """Until the queue is closed; raises what a partition raises."""
        self._owns(())
        async with asyncio.TaskGroup() as group:
            async for change in self._queue.assignments():
                await self._hand_over(change.lost, HAND_OVER)
                self._owns(self.partitions)
                change.settled()
                if (
                    change.gained and not self._draining
                ):  # else it is for the next owner; nobody would hand it over
                    self._gain(change.gained, group)

    def _gain(self, new: Sequence[Gained], group: asyncio.TaskGroup) -> None:
        for gained in new:
            self.partitions[gained.partition] = self._make(gained, self.stir_all)
            log.info("partition %d is ours from offset %d", gained.partition, gained.offset)
        self._owns(self.partitions)
        for gained in new:
            self._tasks[gained.partition] = group.create_task(self.partitions[gained.partition].execute())

    def stir_all(self) -> None:
        """Room was made at a source that all partitions share."""
        for partition in self.partitions.values():
            partition.stir()

    async def drain(self, within: float) -> None:
        """Hand over everything, each partition within the same `within` seconds. Nothing is gained afterwards."""
        self._draining = True
        await self._hand_over(list(self.partitions), within)

    async def _hand_over(self, lost: Iterable[int], within: float) -> None:
        await asyncio.gather(*(self._leave(number, within) for number in lost))

    async def _leave(self, number: int, within: float) -> None:
        """A loss and a drain may come at the same time: the second waits for the hand-over of the first."""
        if number in self._leaving:
            await self._leaving[number].wait()
        elif number in self.partitions:
            left = self._leaving[number] = asyncio.Event()
            await self.partitions[number].hand_over(within)
            _, resisting = await asyncio.wait([self._tasks.pop(number)], timeout=ENDING)
            if resisting:
                log.error("partition %d: a loader ignores that it was cancelled; going on without it", number)
            del self.partitions[number], self._leaving[number]
            left.set()
            log.info("partition %d is handed over", number)
