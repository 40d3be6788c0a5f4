"""Follows the ownership of partitions: runs each gained partition, and hands over each lost one before the queue goes on.

The service runs one `Supervisor` per process. When the task of a partition fails, its error is raised and the process ends:
a partition that stands still in a process that looks healthy would be the worst outcome.
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
BACK = 1.0  # seconds for a partition that comes back at once: nothing is read meanwhile, and a usual statement has ended by then
ENDING = 1.0  # seconds for cancelled tasks to end; a loader that ignores its cancellation must not hold up the others


class Supervisor:
    """All partitions that this process owns."""

    def __init__(
        self,
        queue: Queue,
        make: Callable[[Gained, Callable[[], None]], Partition],
        *,
        owns: Callable[[Collection[int]], None] = lambda _: None,
    ) -> None:
        """`make(gained, wake_all)` builds a partition with a fresh engine.

        `owns` is called with the partitions that are ours: after a loss, before another updater may have them; after a gain,
        before the first hint is read.
        """
        self.partitions: dict[int, Partition] = {}
        self._queue = queue
        self._make = make
        self._owns = owns
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._leaving: dict[int, asyncio.Event] = {}
        self._draining = False

    async def run(self) -> None:
        """Runs until the queue is closed. Raises the error of a partition that fails."""
        self._owns(())
        async with asyncio.TaskGroup() as group:
            async for change in self._queue.assignments():
                await self._hand_over(change.lost, BACK if change.back else HAND_OVER)
                self._owns(self.partitions)
                change.settled()
                if (
                    change.gained and not self._draining
                ):  # during a drain nothing is gained, for nothing would hand it over
                    self._gain(change.gained, group)

    def _gain(self, new: Sequence[Gained], group: asyncio.TaskGroup) -> None:
        for gained in new:
            self.partitions[gained.partition] = self._make(gained, self.wake_all)
            log.info("partition %d is ours from offset %d", gained.partition, gained.offset)
        self._owns(self.partitions)
        for gained in new:
            self._tasks[gained.partition] = group.create_task(self.partitions[gained.partition].execute())

    def wake_all(self) -> None:
        """Wake every partition: a source that all of them share has room again."""
        for partition in self.partitions.values():
            partition.wake_up()

    async def drain(self, within: float) -> None:
        """Hand over all partitions at the same time, `within` these seconds. Nothing is gained afterwards."""
        self._draining = True
        await self._hand_over(list(self.partitions), within)

    async def _hand_over(self, lost: Iterable[int], within: float) -> None:
        await asyncio.gather(*(self._leave(number, within) for number in lost))

    async def _leave(self, number: int, within: float) -> None:
        """Hand one partition over. A loss and a drain may come at the same time: the second waits for the first."""
        if number in self._leaving:
            await self._leaving[number].wait()
        elif number in self.partitions:
            left = self._leaving[number] = asyncio.Event()
            await self.partitions[number].hand_over(within)
            _, resisting = await asyncio.wait([self._tasks.pop(number)], timeout=ENDING)
            if resisting:
                log.error(
                    "partition %d: a loader ignores its cancellation; the updater goes on without it", number
                )
            del self.partitions[number], self._leaving[number]
            left.set()
            log.info("partition %d is handed over", number)
