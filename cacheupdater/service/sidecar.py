"""What a configuration must say before one updater runs beside each application: `run --sidecar` and `check --sidecar`.

Sidecars come in as many copies as their application, each with a memory queue of its own. A budget is said for the
database, so it must be one budget for all of them; without a fleet each would spend it whole, and the database would
see a load that nobody has written down. `cli.run` and `cli.check` hand this to `load_config`; nothing is contacted.
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
    """The way to a setting, and why no sidecar may run with it."""
    if not isinstance(config.queue, MemoryQueueConfig):
        yield ("queue", "url"), _TOPIC
    elif config.fleet is None:
        yield ("fleet",), _ALONE
