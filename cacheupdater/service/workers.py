"""Several updaters on one machine, of one group: `cacheupdater run --workers N`.

One Python process uses one core; partitions are what processes share. The parent starts N children of the same
configuration, each a member of the queue's group with its own partitions, starts one again that dies, passes signals on
and answers for all of them on the one admin address. It loads nothing itself. Children end with it, even if it is
killed: each reads from a pipe that nobody writes to, and stops when that ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes

from cacheupdater.adapters.admin_http import AdminServer, Keyed
from cacheupdater.config.addresses import UnixAddress
from cacheupdater.config.settings import KafkaQueueConfig
from cacheupdater.errors import Misconfigured
from cacheupdater.service import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cacheupdater.config.settings import Config

log = logging.getLogger(__name__)

WORKERS_MAX = 256
AGAIN_FIRST_S = 0.5  # before a worker that died is started again; doubles while it dies young
AGAIN_MOST_S = 15.0
STEADY_S = 60.0  # a worker that has lived so long did not die of what killed the last one
PROBE_EVERY = 1.0  # seconds between two looks at whether the workers are ready
SIGNALLED = 128  # beyond it a shell tells which signal has ended a process
CHUNK_BYTES = 64 * 1024  # of a worker's output, read at once
LINE_BYTES = 1024  # of one line; the one that we wait for has less
FAILED_EXIT = 70  # what counts as the end of one that could not be started
CONFIG_EXIT = 78  # what a worker says when starting it again cannot help


def as_worker(config: Config, number: int, socket: str) -> Config:
    """The configuration of one of them: its own admin socket, instance and file of learned state."""
    queue = config.queue
    if isinstance(queue, KafkaQueueConfig) and queue.instance:
        queue = replace(queue, instance=f"{queue.instance}-{number}")
    state = f"{config.state}.{number}" if config.state else None
    return replace(config, queue=queue, state=state, admin=UnixAddress(socket), admin_token=None)


class Workers:
    """The parent. As `cli.serve.Runnable`."""

    def __init__(self, config: Config, count: int, command: Sequence[str]) -> None:
        """`command` starts a worker when its number and socket are appended."""
        if not isinstance(config.queue, KafkaQueueConfig):
            raise Misconfigured("queue: memory:// belongs to one process; --workers needs a kafka:// queue")
        self._config = config
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="cacheupdater-")
        self._workers = [Worker(number, Path(self._folder.name)) for number in range(count)]
        self._stop = asyncio.Event()

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> int:
        """Until `stop` is set and all have drained; the first exit code that is not 0."""
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
        """Each worker reads its budgets again."""
        self._tell_all(signal.SIGHUP)

    def _tell_all(self, number: signal.Signals) -> None:
        for each in self._workers:
            each.tell(number)

    async def _keep(self, worker: Worker) -> int:
        """One worker's lives, until the stop; a configuration that cannot work ends all."""
        clock, wait = asyncio.get_running_loop().time, AGAIN_FIRST_S
        while True:
            began = clock()
            try:
                code = await worker.live(self._command, self._stop)
            except OSError as e:  # no room for another process just now: those that live shall live on
                log.error("worker %d could not be started: %s", worker.number, e)  # noqa: TRY400  the message is the news
                code = FAILED_EXIT
            if self._stop.is_set():
                # one that our signal reached before it could hear signals had nothing to drain
                return 0 if code == -signal.SIGTERM else code
            if code == CONFIG_EXIT:
                self._stop.set()
                return code
            wait = AGAIN_FIRST_S if clock() - began >= STEADY_S else wait
            log.error("worker %d has ended with %d; starting it again in %g s", worker.number, code, wait)
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
            pages={"/freshness": self._freshness},
            keyed=Keyed({"/explain": self._explain}, self._config.admin_token),
        )
        await server.start()
        stack.push_async_callback(server.close)

    def _metrics(self, _accept: str) -> tuple[bytes, str]:
        """Called in a thread. A worker that does not answer is missing; `workers` and `restarts` tell."""
        found = {each.number: pages.fetch(each.socket, "/metrics")[1] for each in self._workers}
        restarts = {each.number: each.restarts for each in self._workers}
        return pages.merged_metrics(found, restarts), pages.TEXT

    async def _freshness(self) -> dict[str, object]:
        asked = (asyncio.to_thread(pages.fetch, each.socket, "/freshness") for each in self._workers)
        return pages.merged_freshness([body for _, body in await asyncio.gather(*asked)])

    async def _explain(self, key: bytes) -> dict[str, object]:
        page = f"/explain?key={quote_from_bytes(key, safe='')}"
        asked = (asyncio.to_thread(pages.fetch, each.socket, page) for each in self._workers)
        return pages.of_the_owner([body for _, body in await asyncio.gather(*asked)])

    async def _probe(self) -> None:
        while True:
            for each in self._workers:
                status, _ = await asyncio.to_thread(pages.fetch, each.socket, "/readyz")
                each.serves = status == pages.OK
            await asyncio.sleep(PROBE_EVERY)


class Worker:
    """One child, however often it is started."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.socket = str(folder / f"{number}.sock")
        self.ready = asyncio.Event()  # it has accepted hints once
        self.where = ""
        self.serves = False
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None

    async def live(self, command: Sequence[str], stop: asyncio.Event) -> int:
        """From its start to its end; its exit code."""
        self._process = await asyncio.create_subprocess_exec(
            *command,
            f"{self.number}:{self.socket}",
            stdin=asyncio.subprocess.PIPE,  # never written to: see `lifeline`
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which passes it on once
        )
        assert self._process.stdout is not None
        if stop.is_set():  # it came while we were starting
            self.tell(signal.SIGTERM)
        try:
            await self._listen(self._process.stdout)
            return await self._process.wait()
        finally:
            self.serves = False
            if self._process.returncode is None:
                self._process.kill()

    async def _listen(self, said: asyncio.StreamReader) -> None:
        """Until its end. A loader may print what it likes: of a line only the beginning is kept."""
        rest = b""
        while chunk := await said.read(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"ready"):
                    self.where = line.decode(errors="replace").removeprefix("ready").strip()
                    self.ready.set()
            rest = rest[:LINE_BYTES]

    def tell(self, number: signal.Signals) -> None:
        """A signal, if it lives."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


def lifeline() -> None:
    """In a worker, in a thread of its own: when the parent has ended, so shall we."""
    os.read(0, 1)  # not through sys.stdin, whose lock would be held when the interpreter ends
    signal.raise_signal(signal.SIGTERM)
