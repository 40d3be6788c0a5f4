"""The collector as a whole: listeners, gathered hints, the way to the queue, and the admin pages.

`cli.collect` builds one `Collector` per process and runs it until it must stop; an updater that collects runs one behind its door,
with the updater's own observer and notices (`service.collecting_door`). It listens once the queue has said its hello,
for the number of partitions is in it; until then clients keep their hints. At the end the listeners take what is in
flight and stop. Then what is left is forwarded within `DRAIN_S`. Changes and misses that are left then were never acknowledged,
so their clients send them to the next collector; or they lie in the spill, where the next collector finds them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cacheupdater.adapters.listener_stream import StreamListener
from cacheupdater.collector.forwarder import Forwarder
from cacheupdater.collector.gathered import Gathered
from cacheupdater.collector.http_listener import HttpListener
from cacheupdater.collector.links import made_link
from cacheupdater.collector.pages import Pages, watch
from cacheupdater.collector.spill import Spill
from cacheupdater.core.spilling import LIMITS
from cacheupdater.errors import first_error
from cacheupdater.pipeline.losses import Losses
from cacheupdater.pipeline.notices import Notices
from cacheupdater_client.protocol.wire import Hello
from cacheupdater_client.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.core.spilling import Limits
    from cacheupdater_client.transports import Link

log = logging.getLogger(__name__)

DRAIN_S = 5.0  # from the stop until what is left is given up; Kubernetes waits 30 s by default


@dataclass(frozen=True, slots=True)
class Settings:
    """What one collector does."""

    listen: Sequence[str]  # unix:///path, tcp://host:port, http://127.0.0.1:port
    queue: str  # kafka://…, redis://…, sqlite://…, postgresql://…, or unix:///path or tcp://host:port of an updater; may hold a password
    only: Sequence[bytes] = ()  # prefixes of keys; none means all that the queue declares
    admin: str | None = None  # host:port of /metrics, /livez and /readyz
    spill: str | None = None  # the directory where hints wait while the queue is away
    limits: Limits = LIMITS  # of the spill


class Collector:
    """The collector of one process. A `cli.serve.Runnable`."""

    def __init__(
        self, settings: Settings, *, observer: Losses | None = None, notices: Notices | None = None
    ) -> None:
        """`observer` and `notices` are those of the updater that collects. Raises ValueError if the queue's URL names none."""
        self._settings = settings
        self._only = list(settings.only)
        self._alone = notices is None
        self._link: Link = made_link(settings.queue)
        self._pages = Pages(settings.admin, "collector")
        self._notices = notices or Notices(time.monotonic)
        self._observer = observer or Losses(self._pages.observer, self._notices)
        self._forwarder: Forwarder | None = None
        self._streams: StreamListener | None = None
        self._http: HttpListener | None = None
        self._greeted = asyncio.Event()
        self._said: Hello  # by the queue

    @property
    def forwards(self) -> bool:
        """Whether clients can hand in hints, and the queue takes them."""
        return self._streams is not None and self._link.connected

    def declare(self, prefixes: Sequence[bytes]) -> None:
        """From now on only keys that begin so are forwarded, and the clients hear of it."""
        self._only = list(prefixes)
        if self._forwarder is not None:
            self._forwarder.outbox.restrict(prefixes)
        if self._streams is not None:
            self._streams.greet(self._hello)

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Runs until `stop` is set and everything is drained. Calls `ready` once, with the addresses that accept hints."""
        gathered = Gathered(self._observer, spills=self._settings.spill is not None)
        forwarder = Forwarder(
            gathered,
            self._link,
            only=self._only,
            name=shown(self._settings.queue),
            observer=self._observer,
            notices=self._notices,
        )
        async with AsyncExitStack() as stack:
            self._open_spill(stack, gathered, forwarder)
            threads = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="link"))
            loop = asyncio.get_running_loop()

            async def leave() -> None:
                if left := await loop.run_in_executor(threads, forwarder.close):
                    safe = (
                        ""
                        if gathered.owes or not gathered.spills
                        else "; changes and misses of these are on disk"
                    )
                    log.warning("%d hints could not be forwarded in time and are given up%s", left, safe)

            stack.push_async_callback(leave)
            await self._pages.serve(stack, lambda: self._conditions(stop), self._notices)

            async def aside(work: Callable[[], bool]) -> bool:
                return await loop.run_in_executor(threads, work)

            self._forwarder = forwarder
            try:
                async with asyncio.TaskGroup() as group:
                    forwarding = group.create_task(forwarder.run(self, aside, _wall_ms))
                    beside = [forwarding]
                    if self._alone:  # an updater watches for itself
                        beside.append(group.create_task(watch(self._notices, self._observer)))
                    await self._take_hints(gathered, ready, stop)
                    gathered.close()
                    forwarder.empty()
                    await asyncio.wait([forwarding], timeout=DRAIN_S)
                    for each in beside:
                        each.cancel()
            except BaseExceptionGroup as errors:
                raise first_error(errors) from errors
        return 0

    def _conditions(self, stop: asyncio.Event) -> dict[str, bool]:
        """What must be true before the process is ready."""
        return {"queue": self._link.connected, "accepting": self._streams is not None and not stop.is_set()}

    def _open_spill(self, stack: AsyncExitStack, gathered: Gathered, forwarder: Forwarder) -> None:
        """Takes the directory of the spill, if there is one. Raises Misconfigured."""
        if self._settings.spill is None:
            return
        from cacheupdater.adapters.spill_files import SpillFiles  # noqa: PLC0415  only where it is used

        files = SpillFiles(self._settings.spill)
        spill = Spill(
            files,
            self._settings.limits,
            gathered,
            observer=self._observer,
            notices=self._notices,
            now=asyncio.get_running_loop().time(),
        )
        stack.callback(spill.close)
        forwarder.keep_on_disk(spill)

    def reload(self) -> None:
        """A collector has no settings that may change while it runs."""
        log.info("a collector reads its settings once; start it again to change them")

    async def _take_hints(
        self, gathered: Gathered, ready: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        """Listens from the queue's first hello until the stop."""
        await _first_of(stop, self._greeted)
        if stop.is_set():
            return
        by_http = [each for each in self._settings.listen if each.startswith("http:")]
        streams = self._streams = StreamListener(gathered, self._hello, observer=self._observer)
        http = self._http = HttpListener(gathered)
        try:
            await streams.start([each for each in self._settings.listen if each not in by_http])
            await http.start(by_http)
            ready(" ".join([*streams.addresses, *http.addresses]))
            await stop.wait()
        finally:
            await http.close()
            await streams.close()  # which waits for the last acknowledgements
            self._streams = None

    def hello(self, hello: Hello) -> None:
        """The queue has greeted, or greets in another way: the clients hear of its partitions, and of our prefixes."""
        self._said = hello
        self._greeted.set()
        if self._streams is not None:
            self._streams.greet(self._hello)

    @property
    def _hello(self) -> Hello:
        """What clients hear."""
        return Hello(self._said.partitions, self._only or self._said.prefixes)

    def acknowledge(self) -> None:
        """More frames may be acknowledged than before."""
        if self._streams is not None and self._http is not None:
            self._streams.acknowledge()
            self._http.acknowledge()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
