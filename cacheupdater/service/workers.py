"""Several updaters on one machine, of one group: `cacheupdater run --workers N`.

One Python process uses one core, so processes share the partitions. The parent starts N children with the same configuration;
each is a member of the queue's group and owns partitions. The parent starts a child again that dies, passes signals on, and
serves the pages of all children on one admin address. It loads no rows itself. The children end with the parent, even if the
parent is killed: each child reads from a pipe into which nothing is ever written, and stops when the pipe ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote_from_bytes

from cacheupdater.adapters.admin_http import AdminServer, Keyed
from cacheupdater.config.addresses import UnixAddress
from cacheupdater.config.queues import KafkaQueueConfig, MemoryQueueConfig
from cacheupdater.errors import Misconfigured
from cacheupdater.pipeline.notices import Notices
from cacheupdater.service import configuration, pages, quarantine
from cacheupdater.service.configuration import ConfigurationPages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater.config.settings import Config

AGAIN_FIRST_S = 0.5  # the wait before a dead worker is started again; doubles while workers die young
AGAIN_MOST_S = 15.0
STEADY_S = 60.0  # a worker that has lived this long did not die of the cause that killed the last one
PROBE_EVERY = 1.0  # seconds between two checks whether the workers are ready
SIGNALLED = (
    128  # plus the signal's number: the exit code of a process that a signal has ended, as shells count
)
SAID_S = (
    0.5  # for the last output of a worker that has ended; a child of its loader may hold the pipe for ever
)
SOCKET_BYTES_MAX = 107  # of a path, by Linux' sockaddr_un
LINE_BYTES = 1024  # of one line; the awaited line is shorter
FAILED_EXIT = 70  # stands for the exit code of a worker that could not be started
CONFIG_EXIT = 78  # a worker's exit code when starting it again cannot help


def as_worker(config: Config, number: int, socket: str) -> Config:
    """The configuration of one worker: with an admin socket, an instance and a file of learned state of its own. The first
    worker listens, if any."""
    queue = config.queue
    if isinstance(queue, KafkaQueueConfig) and queue.instance:
        queue = replace(queue, instance=f"{queue.instance}-{number}")
    state = f"{config.state}.{number}" if config.state else None
    listen = (
        () if number else config.listen
    )  # a socket has one owner; the others get their hints from the queue
    return replace(
        config, listen=listen, queue=queue, state=state, admin=UnixAddress(socket), admin_token=None
    )


class Workers:
    """The parent of all workers, as a `cli.serve.Runnable`."""

    def __init__(self, config: Config, count: int, command: Sequence[str]) -> None:
        """`command`, with a worker's number and socket appended, starts that worker."""
        if isinstance(config.queue, MemoryQueueConfig):
            raise Misconfigured(
                "queue: memory:// belongs to one process; --workers needs a queue that processes share, such as kafka:// or sqlite://"
            )
        self._config = config
        self._own = ConfigurationPages(lambda: config)
        self._command = command
        self._folder = _folder(count)
        self._workers = [Worker(number, Path(self._folder.name)) for number in range(count)]
        self._stop = asyncio.Event()
        self._notices = Notices(lambda: asyncio.get_running_loop().time())

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Runs until `stop` is set and all workers have drained. Returns the first exit code that is not 0."""
        self._stop = stop
        async with AsyncExitStack() as stack:
            stack.callback(self._folder.cleanup)
            await self._answer(stack)
            async with asyncio.TaskGroup() as group:
                lives = [group.create_task(self._keep(each)) for each in self._workers]
                beside = [group.create_task(each) for each in (self._probe(), self._say_ready(ready))]
                await stop.wait()
                self._tell_all(signal.SIGTERM)
                codes = [await each for each in lives]
                for task in beside:
                    task.cancel()
        first = next((code for code in codes if code), 0)
        return first if first >= 0 else SIGNALLED - first

    def reload(self) -> None:
        """Each worker reads its configuration again."""
        self._tell_all(signal.SIGHUP)

    def warnings(self) -> list[dict[str, object]]:
        """The warnings of this process and of its workers, from the workers' latest pages."""
        return self._notices.plain() + pages.merged_warnings(
            {each.number: each.page for each in self._workers}
        )

    def _tell_all(self, number: signal.Signals) -> None:
        for each in self._workers:
            each.tell(number)

    async def _keep(self, worker: Worker) -> int:
        """Keeps one worker running until the stop. A configuration that cannot work stops all workers."""
        clock, wait = asyncio.get_running_loop().time, AGAIN_FIRST_S
        while True:
            began = clock()
            try:
                code = await worker.live(self._command, self._stop)
            except OSError as e:  # the machine takes no more processes now: the running workers must live on
                code, why = FAILED_EXIT, f"worker {worker.number} could not be started: {e}"
            else:
                why = f"worker {worker.number} has ended with {code}"
            if self._stop.is_set():
                # a worker that died of our signal, before it could handle signals, had nothing to drain
                return 0 if code == -signal.SIGTERM else code
            if code == CONFIG_EXIT:
                self._stop.set()
                return code
            wait = AGAIN_FIRST_S if clock() - began >= STEADY_S else wait
            worker.down = True
            self._notices.trouble(
                "worker_down", str(worker.number), f"{why}; starting it again in {wait:g} s"
            )
            worker.restarts += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stop.wait()
                    return 0
            wait = min(2 * wait, AGAIN_MOST_S)

    async def _say_ready(self, ready: Callable[[str], None]) -> None:
        for each in self._workers:
            await each.ready.wait()
        ready(f"{self._workers[0].where} workers {len(self._workers)}")

    # --- the admin address ------------------------------------------------------------------------------

    async def _answer(self, stack: AsyncExitStack) -> None:
        if self._config.admin is None:
            return
        server = AdminServer(
            self._config.admin.host_port,
            metrics=self._metrics,
            ready=lambda: {f"worker {each.number}": each.serves for each in self._workers},
            warnings=self.warnings,
            pages={"/freshness": self._freshness},
            keyed=Keyed(
                {"/explain": self._explain},
                self._config.admin_token,
                queried={
                    quarantine.LIST: self._quarantine,
                    configuration.SETTINGS: self._settings,
                    configuration.SAME: self._same,
                },
                changes={each: partial(self._change, each) for each in (quarantine.RETRY, quarantine.FORGET)}
                | {configuration.RELOAD: self._reload},
            ),
        )
        await server.start()
        stack.push_async_callback(server.close)

    def _metrics(self, _accept: str) -> tuple[bytes, str]:
        """The merged metrics, without the workers that do not answer. Called in a thread."""
        found = {each.number: pages.fetch(each.socket, "/metrics") for each in self._workers}
        restarts = {each.number: each.restarts for each in self._workers}
        down = {each.number for each in self._workers if each.down}
        return pages.merged_metrics(found, restarts, down=down), pages.TEXT

    async def _freshness(self) -> dict[str, object]:
        return pages.merged_freshness(await self._asked("/freshness"), self._notices.plain())

    async def _explain(self, key: bytes) -> dict[str, object]:
        """The owner's page; if none of our workers is the owner, with those that are down: the key may be of their partitions."""
        page = pages.of_the_owner(await self._asked(f"/explain?key={quote_from_bytes(key, safe='')}"))
        if page["ours"]:
            return page
        return {
            **page,
            "troubles": [*self._notices.plain(), *cast("Sequence[object]", page["troubles"])],
        }

    async def _quarantine(self, query: Mapping[str, bytes]) -> dict[str, object]:
        answers = await self._asked(quarantine.LIST + _quoted(query))
        return pages.merged_quarantine(answers, quarantine.LISTED_MAX)

    async def _change(self, page: str, query: Mapping[str, bytes]) -> dict[str, object] | None:
        return pages.summed(await self._asked(page + _quoted(query), method="POST"))

    async def _settings(self, query: Mapping[str, bytes]) -> dict[str, object]:
        own = await self._own.settings(query)
        return pages.with_own_top(await self._asked(configuration.SETTINGS + _quoted(query)), own)

    async def _same(self, query: Mapping[str, bytes]) -> dict[str, object] | None:
        own = await self._own.same(query)
        if own is None:
            return None
        return pages.with_own_top(await self._asked(configuration.SAME + _quoted(query)), own)

    async def _reload(self, _query: Mapping[str, bytes]) -> dict[str, object]:
        within = configuration.RELOAD_S + pages.FETCH_S
        return pages.merged_outcomes(await self._asked(configuration.RELOAD, method="POST", within=within))

    async def _asked(
        self, page: str, *, method: str = "GET", within: float = pages.FETCH_S
    ) -> dict[int, tuple[int, bytes]]:
        """Each worker's answer, by its number."""
        fetch = partial(pages.fetch, method=method, within=within)
        asked = (asyncio.to_thread(fetch, each.socket, page) for each in self._workers)
        return dict(enumerate(await asyncio.gather(*asked)))

    async def _probe(self) -> None:
        while True:
            for each in self._workers:
                restarts = each.restarts
                status, page = await asyncio.to_thread(pages.fetch, each.socket, "/readyz")
                if each.restarts != restarts:
                    continue  # the answer is of a process that has ended meanwhile
                each.serves, each.page = status == pages.OK, page
                if each.serves:
                    each.down = False
                    self._notices.over("worker_down", str(each.number))
            self._notices.tick()
            await asyncio.sleep(PROBE_EVERY)


def _quoted(query: Mapping[str, bytes]) -> str:
    return "?" + "&".join(f"{name}={quote_from_bytes(value, safe='')}" for name, value in query.items())


def _folder(count: int) -> tempfile.TemporaryDirectory[str]:
    """A folder for the workers' sockets, whose paths must be short."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="cacheupdater-")
    except OSError as e:
        raise Misconfigured(
            f"TMPDIR: no folder for the workers' sockets can be made: {e.strerror or e};"
            " name a folder that this user may write to, or mount one at /tmp"
        ) from e
    size = len(os.fsencode(_socket_in(Path(folder.name), count)))
    if size > SOCKET_BYTES_MAX:
        folder.cleanup()
        raise Misconfigured(
            f"TMPDIR: {tempfile.gettempdir()} is too long: a worker's socket would have a path of {size} bytes, and"
            f" {SOCKET_BYTES_MAX} is the most; name a shorter folder, such as /tmp"
        )
    return folder


def _socket_in(folder: Path, number: int) -> str:
    return str(folder / f"{number}.sock")


class Worker:
    """One worker: a child process, and those that replace it when it dies."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.socket = _socket_in(folder, number)
        self.ready = asyncio.Event()  # set once the worker has accepted hints
        self.where = ""
        self.serves = False
        self.down = False  # it has ended, and does not serve again yet
        self.page = b""  # the latest body of its /readyz
        self.restarts = 0
        self._life: _Life | None = None

    @property
    def lives(self) -> bool:
        """Whether the worker was started and has not ended."""
        return self._life is not None

    async def live(self, command: Sequence[str], stop: asyncio.Event) -> int:
        """Starts the worker and waits for its end. Returns its exit code."""
        life = _Life(self._heard)
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: life,
            *command,
            f"{self.number}:{self.socket}",
            stdin=asyncio.subprocess.PIPE,  # never written to: see `lifeline`
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            start_new_session=True,  # only the parent gets Ctrl-C, and passes it on once
        )
        self._life = life
        if stop.is_set():  # the stop came during the start
            self.tell(signal.SIGTERM)
        try:
            await life.ended.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(SAID_S):
                    await life.silent.wait()
            code = transport.get_returncode()
            return FAILED_EXIT if code is None else code
        finally:
            self.serves, self._life = False, None
            transport.close()  # kills the process if it still runs

    def _heard(self, where: str) -> None:
        self.where = where
        self.ready.set()

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to a running worker. A reload waits until the worker is ready: a SIGHUP without a handler would kill it."""
        if self._life is not None:
            self._life.tell(number)


class _Life(asyncio.SubprocessProtocol):
    """One process of a worker. It counts as ended when the process ends, even if another process still holds its pipe."""

    def __init__(self, ready: Callable[[str], None]) -> None:
        self.ended = asyncio.Event()
        self.silent = asyncio.Event()
        self._say_ready = ready
        self._ready = False
        self._later: list[signal.Signals] = []
        self._rest = b""
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's are not derived from it

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002  only stdout is a pipe that we read
        """Looks for the line that says `ready`. A loader may print anything, so only the beginning of a line is kept."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"ready") and not self._ready:
                self._ready = True
                self._say_ready(line.decode(errors="replace").removeprefix("ready").strip())
                for number in self._later:
                    self.tell(number)
        self._rest = rest[:LINE_BYTES]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002  the reason does not matter
        if fd == 1:
            self.silent.set()

    def process_exited(self) -> None:
        self.ended.set()

    def tell(self, number: signal.Signals) -> None:
        """Send a signal, as soon as the process can handle it."""
        if self._transport is None or self.ended.is_set():
            return
        if number is signal.SIGHUP and not self._ready:
            self._later = [number]
            return
        with suppress(ProcessLookupError):
            self._transport.send_signal(number)


def lifeline() -> None:
    """Ends a worker when its parent has ended. Runs in a thread of its own in the worker."""
    os.read(0, 1)  # not through sys.stdin: this thread would hold its lock when the interpreter ends
    signal.raise_signal(signal.SIGTERM)
