"""What people see of a collector or a drain: its metrics, its troubles, and the admin pages that show both.

Each makes one `Pages`, which lives as long as the process. Without an admin address nobody sees metrics, and nothing is counted.
An updater that collects shows all of this itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Literal

from cacheupdater import __version__
from cacheupdater.core.events import EVENTS
from cacheupdater.pipeline.untold import UNTOLD

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from cacheupdater.pipeline.losses import Losses
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Observer

WATCH_EVERY_S = 1.0  # between two looks at the troubles that stand


class Pages:
    """The admin pages of one process."""

    def __init__(self, address: str | None, whose: Literal["collector", "drain"]) -> None:
        """`address` is the host and port of /metrics, /livez and /readyz."""
        self.observer: Observer = UNTOLD
        self._address = address
        self._metrics: Callable[[str], tuple[bytes, str]] | None = None
        if address is not None:
            self._count(whose)

    def _count(self, whose: Literal["collector", "drain"]) -> None:
        """The library for metrics costs 2 MiB, so it is loaded only here."""
        from cacheupdater.adapters.observer_prometheus import PrometheusObserver, declared  # noqa: PLC0415  as said

        metrics = {"collector": declared.COLLECTOR, "drain": declared.DRAIN}[whose]
        observer = PrometheusObserver(version=__version__, namespaces=(), partitions=0, declared=metrics)
        self.observer, self._metrics = observer, observer.expose

    async def serve(
        self, stack: AsyncExitStack, conditions: Callable[[], dict[str, bool]], notices: Notices
    ) -> None:
        """Serves the pages until the stack is left."""
        if self._address is None or self._metrics is None:
            return
        from cacheupdater.adapters.admin_http import AdminServer  # noqa: PLC0415  only where it is used

        server = AdminServer(self._address, metrics=self._metrics, ready=conditions, warnings=notices.plain)
        await server.start()
        stack.push_async_callback(server.close)


async def watch(notices: Notices, observer: Losses) -> None:
    """Tells of losses, ends the troubles that have not come back, and shows the standing ones as a metric, until it is cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        observer.tell(clock())
        notices.tick()
        standing = Counter[str](each.event for each in notices.standing())
        for event in EVENTS:
            observer.level("troubles", standing[event], label=event)
        await asyncio.sleep(WATCH_EVERY_S)
