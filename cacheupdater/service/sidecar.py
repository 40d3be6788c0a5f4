"""What a configuration must say if an updater runs beside each application: `run --sidecar` and `check --sidecar`.

There are as many sidecars as copies of their application, each with a memory queue of its own. A budget limits the load on
the database, so all sidecars must share it. Without a fleet each would spend the whole budget, and the database would see a
load that no setting states. `cli.run` and `cli.check` hand the function to `load_config`. Nothing is contacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.config.queues import MemoryQueueConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cacheupdater.config.problems import Path
    from cacheupdater.config.settings import Config

_TOPIC = (
    "a sidecar takes hints from the socket that it shares with its application; remove queue, "
    "or run the updaters of this topic in a Deployment of their own, without --sidecar"
)
_ALONE = (
    "is missing, and each of N sidecars would spend every budget and quota whole; "
    "write `fleet: shop`, the same name for all that share this Redis and these budgets"
)


def unfit_beside_an_application(config: Config) -> Iterator[tuple[Path, str]]:
    """The path of each unfit setting, and why no sidecar may run with it."""
    if not isinstance(config.queue, MemoryQueueConfig):
        yield ("queue", "url"), _TOPIC
    elif config.fleet is None:
        yield ("fleet",), _ALONE
