"""Which door the configured queue needs. `Service.run` calls `door_for` once per process.

A process fills a queue of its own (`memory_door`), or it works on one that updaters share (`shared_doors`). It may fill a shared
one too (`collecting_door`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.config.queues import MemoryQueueConfig
from cacheupdater.service.memory_door import MemoryDoor
from cacheupdater.service.shared_doors import shared_door

if TYPE_CHECKING:
    from cacheupdater.config.settings import Config
    from cacheupdater.pipeline.losses import Losses
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.service.door import Door


def door_for(config: Config, *, observer: Losses, notices: Notices) -> Door:
    """The door for the configured queue."""
    if isinstance(config.queue, MemoryQueueConfig):
        return MemoryDoor(config.queue.partitions, config.listen, observer=observer)
    shared = shared_door(config.queue, observer, notices)
    if not config.collects:
        return shared
    from cacheupdater.service.collecting_door import collecting_door  # noqa: PLC0415  only where it is used

    return collecting_door(shared, config, observer=observer, notices=notices)
